"""The section `tune` of a draft: which settings a search varies, by the kind of its task."""

from dataclasses import replace
from typing import Any

from pipelines.config.effects import has_effect
from pipelines.config.load import parse
from pipelines.config.pipeline import Config
from pipelines.config.tuning import Dimension, Tune
from pipelines.errors import ConfigError
from pipelines.init.draft import Draft, Request, plain_values

_COMBINED_TRIALS = 4
_REASON = "what `lockstep tune` varies; its first trial has the settings above"


def add_search(draft: Draft, request: Request) -> Draft:
    """The draft with a section `tune` of the settings that suit its task, and with the budget of the request. A task without such settings
    has none; ConfigError is raised if a budget was asked for."""
    try:
        config = parse(plain_values(draft), request.data)
    except ConfigError:  # which whoever writes or uses the draft says
        return draft
    space = default_space(config)
    if not space and request.budget is not None:
        raise ConfigError(
            f"{request.data}: --tune is given, but a task of kind {config.task.kind} has no settings that are searched by default; leave "
            "--tune out, and write tune.space by hand"
        )
    if not space:
        return draft
    values = {name: dimension.model_dump(mode="json", by_alias=True, exclude_none=True) for name, dimension in space.items()}
    section: dict[str, Any] = {"space": values, **({} if request.budget is None else {"budget": request.budget})}
    section |= {"workers": 1} if config.train.max_workers > 1 else {}
    section |= {"combine": _COMBINED_TRIALS} if config.task.has_average else {}
    section |= {"alternatives": list(draft.alternatives)} if draft.alternatives else {}
    return replace(draft, sections={**draft.sections, "tune": section}, comments={**draft.comments, ("tune",): _REASON})


def default_space(config: Config) -> dict[str, Dimension]:
    """The search space of the config's task, without settings that have no effect beside the config's others."""
    return {name: dimension for name, dimension in config.task.search_space(config.train).items() if has_effect(config, name)}


def read_budget(text: str) -> str | int | None:
    """The value of `--tune` as `tune.budget` has it: a time, or a number of epochs. None for an empty text. Raises ConfigError."""
    if not text:
        return None
    try:
        return Tune(budget=int(text) if text.isdecimal() else text).budget
    except ConfigError as error:
        raise ConfigError(str(error).replace("Tune: budget", "--tune", 1)) from error
