"""Every setting is explained where it stands, and `--help` shows that explanation and takes what it prints."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipelines.config import Config, from_command_line
from pipelines.config.help import USUAL
from pipelines.config.section import Section
from pipelines.config.tracking import Tracking
from pipelines.data.features.raw import words

ROOT = Path(__file__).parents[2]


def sections(base: type[Section] = Section) -> Iterator[type[Section]]:
    """Every section of the config."""
    for section in base.__subclasses__():
        if section.__module__.startswith("pipelines.config."):
            yield section
            yield from sections(section)


def descriptions(section: type[Section], name: str) -> list[str | None]:
    """A setting's own description, and those of the settings that it overrides."""
    return [base.model_fields[name].description for base in section.__mro__ if name in getattr(base, "model_fields", {})]


SETTINGS = [(section, name) for section in sections() for name in section.model_fields]


@pytest.mark.parametrize(("section", "name"), SETTINGS, ids=[f"{section.__name__}.{name}" for section, name in SETTINGS])
def test_a_setting_is_explained(section: type[Section], name: str) -> None:
    assert any(descriptions(section, name))


def help_text(config: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    monkeypatch.setenv("COLUMNS", "90")  # one column of them
    with pytest.raises(SystemExit):
        from_command_line("jobs/train.py", [str(ROOT / config), "--help", "all"])
    return re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)


def print_help(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as exit_request:
        from_command_line("jobs/verify.py", [*arguments], "--run RUN_ID [--steps FIRST_STEPS]")
    assert exit_request.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("config", sorted(file.name for file in (ROOT / "conf").glob("*.yaml")))
def test_help_is_shorter_than_40_lines_and_its_flags_are_settings(
    config: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = print_help(monkeypatch, capsys, str(ROOT / "conf" / config), "--help", "--train.seed", "8675309")
    assert len(text.splitlines()) < 40 and "--train.seed 8675309" in text and "--help all" in text
    help_lines = [line for line in text.splitlines()[2:] if line.startswith("  ")]
    assert max(map(len, help_lines)) <= 80
    flags = [line.split()[0] for line in help_lines if line.startswith("  --")]
    assert flags == [f"--{key}" for key in USUAL]
    every = print_help(monkeypatch, capsys, str(ROOT / "conf" / config), "--help", "all")
    assert [flag for flag in flags if not re.search(rf"^ +{flag} ", every, re.MULTILINE)] == []


def test_help_of_a_section_has_its_settings_only(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text = print_help(monkeypatch, capsys, str(ROOT / "conf/adult.yaml"), "--help", "tracking")
    flags = set(re.findall(r"^ +--(\S+)", text, re.MULTILINE))
    assert flags == {f"tracking.{name}" for name in Tracking.model_fields}


def explanations(text: str) -> dict[str, str]:
    """What `--help` says of each flag, in a line."""
    texts: dict[str, str] = {}
    flag = ""
    for line in (line.strip("│|╭╰╮╯─-+ ") if line[:3] in ("---", "+--") else line.strip("│| ") for line in text.splitlines()):
        if match := re.match(r"--(\S+)", line):
            flag = match[1]
        elif flag:
            texts[flag] = f"{texts.get(flag, '')} {line}".strip()
    return {flag: " ".join(text.partition("(default")[0].split()) for flag, text in texts.items()}


def settings(section: Any, key: str = "") -> Iterator[tuple[str, str, Any]]:
    """Flag, explanation and value of each setting of a config, but those of mappings."""
    for name, field in type(section).model_fields.items():
        value, dotted = getattr(section, name), f"{key}{field.alias or name}"
        if isinstance(value, Section) and name != "split":
            yield from settings(value, f"{dotted}.")
        elif not isinstance(value, dict) and name != "split":
            yield dotted, next(filter(None, descriptions(type(section), name))), value


@pytest.mark.parametrize("config", ["conf/adult.yaml", "conf/video_games.yaml", "conf/shakespeare.yaml", "conf/trec.yaml"])
def test_help_shows_each_setting_s_own_explanation(
    config: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = explanations(help_text(config, monkeypatch, capsys))
    assert "train.seed" in texts and "schema" in {flag.rpartition(".")[2] for flag in texts}
    for flag, explanation, _ in settings(from_command_line("jobs/train.py", [str(ROOT / config)])):
        assert texts[flag].endswith(" ".join(explanation.split())), flag


def default_words(value: Any) -> list[str]:
    """A default as `--help` prints it."""
    return [str(part) for part in value] if isinstance(value, tuple) else [str(value)]


@pytest.mark.parametrize("name", ["adult", "trec", "movielens", "spoken_digits", "video_games"])
def test_every_value_that_help_prints_is_taken(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_HOME", "/home-of-runs")
    path = str(ROOT / f"conf/{name}.yaml")
    config = from_command_line("jobs/train.py", [path])
    flags = [
        word for flag, _, value in settings(config) for word in ([f"--{flag}="] if value == "" else [f"--{flag}", *default_words(value)])
    ]
    flags += ["--train.lr_factors", "{}"]  # a mapping: only a config with all of train is one that a program has written
    reread = from_command_line("jobs/train.py", [path, *flags])
    assert reread.model_dump() == config.model_dump()


@pytest.mark.parametrize(
    ("flags", "key", "value"),
    [
        (["--task.hidden", "256", "128"], "hidden", (256, 128)),
        (["--task.hidden", "[256, 128]"], "hidden", (256, 128)),
        (["--task.hidden=[256, 128]"], "hidden", (256, 128)),
        (["--task.hidden", "256"], "hidden", (256,)),
        (["--task.hidden", "--task.dropout", "0"], "hidden", ()),
        (["--task.hidden", "[]", "--task.dropout", "0"], "hidden", ()),
        (["--task.class_weights", "1", "2.5"], "class_weights", (1.0, 2.5)),
        (["--task.class_weights", "balanced"], "class_weights", "balanced"),
    ],
)
def test_lists_are_taken_in_both_forms(flags: list[str], key: str, value: Any) -> None:
    assert getattr(from_command_line("jobs/train.py", [str(ROOT / "conf/adult.yaml"), *flags]).task, key) == value


def test_lists_of_every_section_are_taken() -> None:
    flags = [
        "--train.workers",
        "1",
        "2",
        "--dataset.key",
        "a",
        "--source.tables.train.path",
        "/a",
        "/b",
        "--tracking.tags",
        "team",
        "x",
        "n",
        "'1'",
    ]
    flags += ["--train.max_steps", "None", "--dataset.features.place", "{encoder: fourier}", "--dataset.features.place.columns", "a", "b"]
    config: Config = from_command_line("jobs/train.py", [str(ROOT / "conf/adult.yaml"), *flags])
    assert (config.train.workers, config.dataset.key, config.train.max_steps) == ((1, 2), ("a",), None)
    assert config.source.tables["train"].paths == ("/a", "/b")
    assert config.tracking.tags == {"team": "x", "n": "1"}
    assert config.dataset.encoders["place"].columns == ("a", "b")


def test_words_are_what_the_explanation_says() -> None:
    assert words(pa.array(["It's 9.5 %", "snake_case don't"])).to_pylist() == [
        ["It", "'s", "9", ".", "5", "%"],
        ["snake_case", "don", "'t"],
    ]
