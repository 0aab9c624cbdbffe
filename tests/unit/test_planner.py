"""Plans of configs: what they list, that training takes what they propose, and what they refuse."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pipelines import api
from pipelines.commands import COMMANDS
from pipelines.config import Config, load
from pipelines.config.train.train import Train
from pipelines.costs.config_costs import config_costs
from pipelines.errors import ConfigError
from pipelines.planner.layout_settings import layout_settings
from pipelines.planner.plan import PlanRequest, TrainingPlan, make_plan
from pipelines.planner.plan_page import plan_page, write_plan_page
from pipelines.planning.layouts import ParallelLayout
from pipelines.report.figures.canvas import UndefinedError
from pipelines.report.figures.plans import CostPoint, PartBar, cost_points, part_bars
from pipelines.strategies.sharded.parameter_shards import skeleton
from pipelines.strategies.sharded.settings import Settings as Sharded
from pipelines.strategies.sharded.sharded import check_spread
from pipelines.strategies.sharded.stages import check_stages
from pipelines.tasks.bind import placeholder_task

PLANNED = ("conf/gpt_10m.yaml", "conf/adult.yaml", "conf/cifar10.yaml")


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path))


def plan_config(path: str, hardware: str = "h100x8", **options: Any) -> TrainingPlan:
    return make_plan(PlanRequest(hardware, **options), api.read_config(path))


@pytest.mark.parametrize("path", PLANNED)
def test_training_takes_every_candidate(path: str) -> None:
    """The config with the settings of each is valid, and strategies do not refuse its degrees."""
    plan = plan_config(path, "h100x8,h100x16,cpu2")
    assert plan.config is not None and plan.candidates
    task = None
    for settings in _different([layout_settings(candidate.layout, plan.config) for candidate in plan.candidates]):
        train = Train.model_validate({**plan.config.train.model_dump(mode="json"), "balance": "equal", **settings})
        if train.strategy.kind != "sharded":
            continue
        task = task or placeholder_task(plan.config, is_largest=True)
        assert task is not None
        check_spread(train, task, skeleton(task))
        if settings["strategy"].get("pipeline", 1) > 1:
            check_stages(train, task, skeleton(task))


def _different(all_settings: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [json.loads(text) for text in dict.fromkeys(map(json.dumps, all_settings))]


def test_the_layout_of_a_config_is_what_its_settings_say() -> None:
    plan = plan_config("conf/gpt_10m.yaml", "h100x8")
    assert plan.config is not None
    for candidate in plan.candidates[::20]:
        settings = {**plan.config.train.model_dump(mode="json"), "balance": "equal", **layout_settings(candidate.layout, plan.config)}
        config = plan.config.model_copy(update={"train": Train.model_validate(settings)})
        layout = config_layout(config, candidate.layout.workers)
        assert (layout.readers, layout.microbatch, layout.accumulation) == (
            candidate.layout.readers,
            candidate.layout.microbatch,
            candidate.layout.accumulation,
        )
        assert layout_settings(layout, plan.config) == layout_settings(candidate.layout, plan.config)


def config_layout(config: Config, workers: int) -> ParallelLayout:
    """The layout of a config as it stands, on that many workers."""
    train, strategy = config.train, config.train.strategy
    rows = train.global_batch // strategy.readers(workers)
    common: dict[str, Any] = {
        "microbatch": rows // train.grad_accum_steps,
        "accumulation": train.grad_accum_steps,
        "compile": train.compile,
    }
    if not isinstance(strategy, Sharded):
        return ParallelLayout(replicate=workers, full_copies=True, **common)
    return ParallelLayout(
        **strategy.degrees(workers)._asdict(),
        schedule=strategy.schedule,
        checkpointing=strategy.activation_checkpointing,
        reshard_after_forward=strategy.reshard_after_forward,
        reduce_every_pass=strategy.reduce_every_pass,
        offload=strategy.offload,
        **common,
    )


def test_candidates_as_values(capsys: pytest.CaptureFixture[str]) -> None:
    COMMANDS["plan"]("lockstep plan", ["conf/gpt_10m.yaml", "--hardware", "h100x8,cpu2", "--json"])
    candidates = json.loads(capsys.readouterr().out)
    assert {"layout", "tokens_per_second", "step_seconds", "memory_gib", "mfu", "limit", "hardware"} <= candidates[0].keys()
    seconds = [candidate["step_seconds"] for candidate in candidates if candidate["hardware"] == "h100x8"]
    assert candidates[0]["best"] and min(seconds) == candidates[0]["step_seconds"]
    assert candidates[0]["hours"] is None  # there is no dataset version


def test_one_layout_of_a_named_model(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--model", "llama3-8b", "--hardware", "h100_96gbx8", "--layout", "shard=8,checkpointing=alternate"]
    COMMANDS["plan"]("lockstep plan", [*arguments, "--microbatch", "2", "--accumulation", "1", "--json"])
    (candidate,) = json.loads(capsys.readouterr().out)
    assert candidate["workers"] == 8 and candidate["microbatch"] == 2
    assert candidate["tokens_per_second"] == pytest.approx(8 * candidate["tokens_per_second_per_worker"])


def test_a_strategy_whose_sums_do_not_depend_on_workers_keeps_its_passes() -> None:
    """All that a plan changes is the number of workers."""
    config = api.read_config("conf/adult.yaml", {"train.strategy": "exact"})
    plan = make_plan(PlanRequest("h100x1,h100x2,h100x8", rows=1e6), config)
    assert [layout_settings(candidate.layout, config) for candidate in plan.candidates]
    for candidate in plan.candidates:
        assert layout_settings(candidate.layout, config) == {"workers": candidate.layout.workers}
        assert candidate.layout.microbatch == config.train.global_batch // config.train.shards


def test_a_table_with_lines_to_paste(capsys: pytest.CaptureFixture[str]) -> None:
    COMMANDS["plan"]("lockstep plan", ["conf/gpt_10m.yaml", "--hardware", "h100x8", "--rows", "1e7", "--deadline", "100h"])
    text = capsys.readouterr().out
    assert "cheapest within the deadline: h100x8" in text and "  train:\n    workers: 8\n" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["conf/gpt_10m.yaml"], "no hardware is named; give --hardware with one or more of"),
        (["conf/gpt_10m.yaml", "--hardware", "h10x8"], "hardware 'h10' has no data sheet.*choose h100"),
        (["--hardware", "h100x8", "--model", "lama3-8b"], "model 'lama3-8b' is unknown; choose llama3-8b"),
        (["--hardware", "h100x8", "--model", "layers=2,width=64"], "has no heads and no vocabulary and no sequence; add heads=NUMBER"),
        (["conf/gpt_10m.yaml", "--hardware", "h100x8", "--layout", "shard=4"], "is 4 workers, but there are 8; set shard to make up 8"),
        (["conf/gpt_10m.yaml", "--hardware", "h100x8", "--layout", "tensor=8"], "tensor is 8, which does not divide"),
        (["conf/gpt_10m.yaml", "--hardware", "h100x8", "--deadline", "soon"], "deadline is 'soon', which is no time; give one such as"),
        (["conf/gpt_10m.yaml", "--hardware", "h100x8", "--rows", "1e9", "--budget", "0.01"], "no candidate costs at most 0.01: nearest"),
        (
            ["--hardware", "l4x8", "--model", "llama3-405b"],
            "fits on none of l4x8: nearest is .* which lacks .* GiB per device; add devices",
        ),
        (
            ["conf/gpt_10m.yaml", "--hardware", "h100x8", "--layout", "shard=8,accumulation=3"],
            "24 passes of a step.*do not divide its .* rows; give degrees that do, or --microbatch",
        ),
        (
            ["conf/gpt_10m.yaml", "--hardware", "h100x8", "--measure"],
            "--measure times the model of a config.*give CONF.yaml, and --hardware here",
        ),
        (["conf/gpt_10m.yaml", "--hardware", "h100x8", "--deadline", "4h"], "how many rows are trained on is unknown.*; give --rows"),
        (["conf/gpt_10m.yaml", "--hardware", "h100x8", "--rows", "-1"], "rows is -1, which is below 0; give a number above 0"),
    ],
)
def test_what_is_refused_in_one_line(arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        COMMANDS["plan"]("lockstep plan", arguments)
    assert "\n" not in str(refused.value)


def test_a_plan_without_a_model_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"neither a config nor --model; give CONF.yaml"):
        api.plan(hardware="h100x8")


def test_a_config_without_gradients_is_refused() -> None:
    with pytest.raises(ConfigError, match="no parameters that gradients train"):
        config_costs(load("conf/adult_trees.yaml"))


def test_a_plan_is_a_page_with_its_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.html"
    COMMANDS["plan"]("plan", ["conf/gpt_10m.yaml", "--hardware", "h100x8,a100x8", "--rows", "1e7", "--page", str(path), "--json"])
    best = json.loads(capsys.readouterr().out)[0]
    page = path.read_text()
    assert page.count("<svg") + page.count("image/svg+xml") >= 3 and "There is no figure" not in page
    assert "fastest: " in page and f"workers: {best['workers']}" in page and best["layout"] in page
    assert "http://" not in page.replace("http://www.w3.org", ""), "it needs no network"


def test_a_page_without_hours_says_what_is_known(tmp_path: Path) -> None:
    plan = make_plan(PlanRequest("h100x8", model="llama3-8b"))
    page = plan_page(plan)
    assert "Hours and costs" not in page and "expected hours" not in page and "how many rows are trained on is unknown" in page
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match=r"page .*/folder cannot be written: Is a directory; name another file"):
        write_plan_page(plan, tmp_path / "folder")
    write_plan_page(plan, tmp_path / "plan.html")
    assert (tmp_path / "plan.html").read_text() == page


def test_the_figures_of_a_plan_are_functions_of_their_values() -> None:
    bars = [PartBar("one", {"a": 1.0, "b": 0.0, "c": 2.0}, 4.0), PartBar("$two$", {"a": 0.5, "b": 0.0, "c": 0.0})]
    svg = part_bars(bars, "seconds").decode()
    assert part_bars(bars, "seconds").decode() == svg and ">c<" in svg and ">b<" not in svg, "a part that no bar has is not named"
    with pytest.raises(UndefinedError, match="there is no candidate"):
        part_bars([], "seconds")
    points = [CostPoint("h100x8", 2.0, 40.0, "fastest"), CostPoint("l4x8", 9.0, 20.0, "cheapest"), CostPoint("l4x8", 9.5, 0.0)]
    assert "fastest" in cost_points(points, "cost").decode()
    with pytest.raises(UndefinedError, match="hours or costs are unknown"):
        cost_points(points[2:], "cost")
