"""The draft of a config: plain values with their reasons, the text of a YAML file that a person would have written, and the new file."""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import shorten
from typing import Any

import yaml

from pipelines.config.load import parse
from pipelines.config.reading import from_yaml
from pipelines.errors import ConfigError
from pipelines.runtime.atomic import create_file

LEFT_OUT = "Left out"
"""Begin of the lines of comments that name columns which are no features."""
_MOST_LINES, _MOST_SHOWN = 3, 120
"""Lines about columns that are left out, and characters of each, that the command prints."""
KeyPath = tuple[str, ...]
"""The keys from the top of a config to a setting: `("dataset", "features", "age")`."""
Announce = Callable[[Mapping[str, Any]], None]
"""Takes the sections of a config whose `source` and `dataset` will hardly change any more."""
LINE_CHARACTERS = 140
BLOCKS = ({"source"}, {"source", "tables"}, {"source", "expect"}, {"dataset"}, {"dataset", "features"}, {"tune"}, {"tune", "space"})
"""Sections with a line for each of their settings, however short they are."""
ANONYMOUS = ("data", "train", "dataset", "table", "rows")
"""Names of files that say nothing of the data."""
Check = Callable[[Mapping[str, Any]], tuple[str, ...]]
"""Takes the plain values of a config. Raises a LockstepError if ETL or training would refuse it, and returns lines for the reader of the
command's output."""


@dataclass(frozen=True)
class Draft:
    """A config that no one has edited yet. Its text is a pure function of it, and it is one of the data."""

    sections: Mapping[str, Any]
    """The config as YAML reads it: `name`, `source`, `dataset`, `task`, `train` and `tune`, in the order of the file."""
    introduction: tuple[str, ...] = ()
    """Lines of the comment at the top: what the data are."""
    comments: Mapping[KeyPath, str] = field(default_factory=dict)
    """Reasons by setting, empty for none. One of a setting that fills one line stands behind it, any other above it, line by line."""
    assumptions: tuple[str, ...] = ()
    """Doubts, each with what was assumed and how to change it, for the reader of the command's output."""
    alternatives: tuple[Mapping[str, Any], ...] = ()
    """Models of other kinds that suit the data too, each with its sections `task` and `train`."""

    @property
    def notes(self) -> tuple[str, ...]:
        """The doubts, and which columns are left out and why, for those who do not see the text."""
        return (*self.assumptions, *self._left_out_lines)

    @property
    def left_out(self) -> str:
        """A line about the first columns that are no features, and the number of all others; empty if there are none."""
        lines = [shorten(line.removeprefix(LEFT_OUT).strip(":, ."), _MOST_SHOWN, placeholder=" …") for line in self._left_out_lines]
        more = f"; {len(lines) - _MOST_LINES:,} more are named above dataset.features" if len(lines) > _MOST_LINES else ""
        return f"left out: {'; '.join(lines[:_MOST_LINES])}{more}" if lines else ""

    @property
    def _left_out_lines(self) -> list[str]:
        lines = (line for comment in self.comments.values() for line in comment.splitlines())
        return [line for line in lines if line.startswith(LEFT_OUT)]


@dataclass(frozen=True)
class Request:
    """Arguments of the command."""

    data: str
    """Path of a file or a folder, as it is to stand in the config."""
    target: str
    """Name of the column to predict; empty if it is to be chosen."""
    name: str
    """Name of the pipeline, of its folder of datasets, and of its table."""
    skip_rows: int | None = None
    """Lines of a text, or rows of a sheet, before the names of the columns; None if that is to be found out."""
    budget: str | int | None = None
    """Of a search of settings, as `tune.budget` has it; None to draft none."""
    announce: Announce = lambda sections: None
    """Is called as soon as the dataset is drafted, before models are tried, so that the draft can be tried meanwhile."""


Drafter = Callable[[Request], Draft | None]
"""Drafts the config of data of one kind; None for data of another kind. Raises ConfigError or SourceError for data of this kind that no
config can be made of."""


def yaml_text(draft: Draft) -> str:
    """The file: the introduction, then each section. Equal drafts give equal texts."""
    introduction = [f"# {line}".rstrip() for line in draft.introduction]
    comments = {path: comment for path, comment in draft.comments.items() if comment}
    body = [line for key, value in draft.sections.items() for line in _setting((key,), value, comments)]
    return "\n".join([*introduction, *body]) + "\n"


def _setting(path: KeyPath, value: Any, comments: Mapping[KeyPath, str]) -> Iterator[str]:
    """The lines of a setting, with its comment."""
    indent = "  " * (len(path) - 1)
    key = f"{indent}{_inline(path[-1])}:"
    comment = comments.get(path, "")
    is_block = False  # whether each entry of the value has a line of its own
    if isinstance(value, Mapping) and value:
        line = f"{indent}{path[-1]}: {_inline(value)}"
        has_comment = any(len(other) > len(path) and other[: len(path)] == path for other in comments)
        is_block = has_comment or set(path) in BLOCKS or len(line) > LINE_CHARACTERS or "\\n" in line
    lines = [] if is_block else _short_lines(key, value)
    with_comment = f"{lines[0]}  # {comment}" if len(lines) == 1 else ""
    if with_comment and comment and "\n" not in comment and len(with_comment) <= LINE_CHARACTERS:
        yield with_comment
        return
    yield from (f"{indent}# {line}".rstrip() for line in comment.splitlines())
    if lines:
        yield from lines
    else:
        yield key
        for name, inner in value.items():
            yield from _setting((*path, str(name)), inner, comments)


def _short_lines(key: str, value: Any) -> list[str]:
    """A value without lines for its settings: in the line of its key, as a list of sections with lines for theirs, or as text of several
    lines, which YAML joins again. A text that has other white space than single spaces, or begins or ends with some, stays in one line."""
    indent = " " * (len(key) - len(key.lstrip()) + 2)
    if not isinstance(value, str):
        line = f"{key} {_inline(value)}"
        is_list = isinstance(value, list | tuple) and all(isinstance(entry, Mapping) for entry in value)
        return [line] if len(line) <= LINE_CHARACTERS or not is_list else [key, *_section_lines(value, indent)]
    if "\n" in value and value == value.strip():
        return [f"{key} |-", *(f"{indent}{line}".rstrip() for line in value.split("\n"))]
    text = str(yaml.safe_dump(value, allow_unicode=True, width=float("inf"))).removesuffix("...\n").removesuffix("\n")
    words = value.split(" ")
    if len(f"{key} {text}") <= LINE_CHARACTERS or not all(words) or not value.isprintable():
        return [f"{key} {text}"]
    lines = [f"{indent}{words[0]}"]
    for word in words[1:]:
        if len(lines[-1]) + 1 + len(word) > LINE_CHARACTERS:
            lines.append(f"{indent}{word}")
        else:
            lines[-1] += f" {word}"
    return [f"{key} >-", *lines]


def _section_lines(sections: Sequence[Mapping[str, Any]], indent: str) -> Iterator[str]:
    """The lines of a list of sections, one for each setting."""
    for section in sections:
        for place, (name, value) in enumerate(section.items()):
            yield f"{indent}{'- ' if place == 0 else '  '}{_inline(name)}: {_inline(value)}"


def _inline(value: Any) -> str:
    """A value as YAML writes it within a line."""

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: plain(inner) for key, inner in value.items()}
        return [plain(inner) for inner in value] if isinstance(value, list | tuple) else value

    text = yaml.safe_dump([plain(value)], default_flow_style=True, allow_unicode=True, sort_keys=False, width=float("inf"))
    return str(text).strip()[1:-1]


def check_output(output: str | Path) -> None:
    """Raise ConfigError if the file exists."""
    if os.path.lexists(output):
        raise ConfigError(f"{output} exists, and may have been edited; name another file with --output, or remove it")


def write_config(draft: Draft, output: str | Path, check: Check) -> tuple[str, ...]:
    """Write the draft to a new file, unless `check` raises, and return what that has to say."""
    text = yaml_text(draft)
    values = from_yaml(text)
    parse(values, str(output))
    remarks = check(values)
    if not create_file(output, text.encode()):
        check_output(output)
    return remarks


def plain_values(draft: Draft) -> dict[str, Any]:
    """The config as its file would be read."""
    return from_yaml(yaml_text(draft))


def config_path(data: str | Path, output: str | Path) -> Path:
    """The file to write: `output`, or conf/NAME.yaml, by the name of the data's file, or of its folder if the file's says nothing of it."""
    if str(output):
        return Path(output)
    path = Path(data)
    stem = path.name.split(".")[0]
    name = path.absolute().parent.name if stem.lower() in ANONYMOUS and path.is_file() else stem or path.absolute().name
    return Path("conf") / f"{_plain_name(name)}.yaml"


def pipeline_name(output: Path) -> str:
    """The name of a pipeline whose config is this file: that of the file, in the characters that a pipeline's name may have."""
    return _plain_name(output.stem)


def path_in_config(data: str | Path, home: Path) -> str:
    """The path as typed if it starts at `home`, as the paths of a config do; else the absolute path. An address stays as it is."""
    is_address = re.match(r"\w{2,}:", str(data)) is not None and not Path(data).exists()
    return str(data) if Path.cwd() == home or is_address else str(Path(data).absolute())


def _plain_name(text: str) -> str:
    return re.sub("[^a-z0-9]+", "_", text.lower()).strip("_")[:60] or "pipeline"
