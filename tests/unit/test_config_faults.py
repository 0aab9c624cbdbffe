"""What no config may hold, and what no reader of YAML may be brought down by: each ends in a line."""

import encodings
import json
import pkgutil
from encodings.aliases import aliases
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_config import PIPELINE, faults, set_value, values  # noqa: F401

from pipelines.config import from_command_line, load
from pipelines.config.reading import from_yaml
from pipelines.config.source.table_settings import check_options
from pipelines.errors import ConfigError


def file_faults(folder: Path, text: str | bytes) -> list[str]:
    """The faults of a file, its path left out."""
    path = folder / "x.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError) as caught:
        load(path)
    return str(caught.value).replace(f"{path}: ", "").splitlines()


def aliases_in_aliases(times: int, levels: int = 60) -> str:
    """Lists of lists by reference, with about `times` to the power of `levels` values."""
    names = [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * times)}]" for level in range(1, levels)]
    return "\n".join(["a0: &a0 [1]", *names, f"dataset: *a{levels - 1}"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "dataset: {split: {time: d, validation: 2017-02-30}}",
            "'2017-02-30' is not a valid timestamp: day is out of range",
        ),
        ("train: {seed: !!int x}", "'x' is not a valid int"),
        ("train: {shuffle: !!bool maybe}", "'maybe' is not a valid bool"),
        ("train: {seed: " + "9" * 5_000 + "}", "is not a valid int"),
        ("dataset: " + "[" * 20_000, "not YAML: nested too deeply"),
        ("dataset: " + "{a: " * 20_000, "not YAML: nested too deeply"),
        ("dataset: [" * 300, "not YAML: nested too deeply"),
        (aliases_in_aliases(1), "not YAML: nested too deeply"),
        (aliases_in_aliases(2), "not YAML: more than 1,000,000 values"),
        ("a: \x07", "not YAML: "),
        (b"a: \xff", "byte 3 is not UTF-8; save the file as UTF-8"),
        ("{[1]: 2}", "not YAML: "),
        ("a: &a [*a]", "a: no such setting"),
        ("dataset: &a {features: *a}", "dataset"),
        ("name: !!python/object:os.system x", "not YAML: could not determine a constructor"),
        ("", "a pipeline is a mapping of sections, such as name, source and dataset (got nothing)"),
    ],
)
def test_what_yaml_cannot_be_is_told_in_a_line(tmp_path: Path, text: str | bytes, message: str) -> None:
    lines = file_faults(tmp_path, text)
    assert any(message in line for line in lines) and all(len(line) < 400 for line in lines)


def test_fewer_aliases_are_read() -> None:
    assert from_yaml(aliases_in_aliases(2, levels=2))["dataset"] == [[1], [1]]


def test_the_place_in_the_file_is_told_and_its_text_is_not(tmp_path: Path) -> None:
    (line,) = file_faults(tmp_path, "name: x\ntracking: {tags: {password: concealed]}\n")
    assert "(line 2, column " in line and "concealed" not in line


def test_a_flag_s_yaml_is_read_as_strictly(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(PIPELINE)
    for text in ("[" * 20_000, "2017-02-30", "{a: 1, a: 2}"):
        with pytest.raises(ConfigError, match=r"^--dataset.split: not a YAML value") as caught:
            from_command_line("jobs/etl.py", [str(tmp_path / "x.yaml"), "--dataset.split", text])
        assert len(str(caught.value)) < 300 and "\n" not in str(caught.value)


def test_a_query_on_the_command_line_keeps_its_lines(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(PIPELINE)
    query = "SELECT * -- all: of them\nFROM people # or none"
    assert from_command_line("jobs/etl.py", [str(tmp_path / "x.yaml"), "--source.query", query]).source.query == query


NO_TEXT = {
    "base64",
    "hex",
    "bz2",
    "zlib",
    "zip",
    "uu",
    "rot13",
    "quopri",
    "punycode",
    "idna",
    "undefined",
    "mbcs",
    "oem",
    "UTF-7.5",
    "",
    "\0",
    "é",
}


def test_each_codec_of_python_s_is_one_of_text_or_refused() -> None:
    names = {module.name for module in pkgutil.iter_modules(encodings.__path__)} | set(aliases) | NO_TEXT
    refused = set()
    for name in names:
        try:
            check_options("csv", ("encoding",), {"encoding": name})
        except ValueError as error:
            assert "it must be a text encoding that Python supports, such as ISO-8859-1" in str(error)
            refused.add(name)
    assert refused >= NO_TEXT
    assert not refused & {
        "utf_8",
        "utf_16",
        "utf_32",
        "latin_1",
        "cp037",
        "big5",
        "gb18030",
        "shift_jis",
        "utf_7",
        "utf_8_sig",
        "iso2022_jp",
    }


@pytest.mark.parametrize("option", [{"sep": ""}, {"delimiter": ""}, {"sep": '"'}, {"sep": "\n"}, {"sep": "\\"}, {"maxColumns": "many"}])
def test_what_separates_nothing_is_refused(values: dict[str, Any], option: dict[str, Any]) -> None:  # noqa: F811
    (line,) = faults(set_value(values, "source.tables.people.options", option))
    assert "; it must be " in line


SECRETS = [
    ("tracking.uri", "https://concealed@host/"),
    ("tracking.uri", "https://concealed@host:443/mlflow"),
    ("tracking.uri", "http://me:hid/den@mlflow"),
    ("tracking.uri", "postgresql://me:concealed@db/mlflow"),
    ("tracking.uri", "https://host/?api_key=concealed"),
    ("tracking.uri", "https://host/#access_token=concealed"),
    ("tracking.tags", {"password": "concealed"}),
    ("tracking.tags", {"API-Key": "concealed"}),
    ("tracking.tags", {"source": "https://me:concealed@git.example/x"}),
    ("tracking.tags", {"source": "git+https://concealed@git.example/x"}),
    ("tracking.tags", {"password": 12345}),
    ("tracking.experiment", "https://concealed@host/"),
    ("dataset.path", "https://concealed@host/data"),
    ("dataset.path", "abfss://c@account.dfs.core.windows.net/x?sv=1&sig=concealed"),
    ("dataset.path", "s3://bucket/x?X-Amz-Signature=concealed"),
    ("train.storage", "s3://concealed:concealed@bucket"),
    ("source.tables.people.path", ["a.csv", "https://concealed@host/a.csv"]),
    ("source.tables.people.options", {"nullValue": "https://me:concealed@host"}),
    ("source.tables.people.options", {"fs.s3a.access.key": "concealed"}),
    ("train.password", "concealed"),
    ("task.api_token", "concealed"),
]


@pytest.mark.parametrize(("dotted", "value"), SECRETS)
def test_p8_a_secret_s_brothers_are_refused_and_not_repeated(values: dict[str, Any], dotted: str, value: Any) -> None:  # noqa: F811
    (line,) = faults(set_value(values, dotted, value))
    assert dotted.rpartition(".")[0] in line and "concealed" not in line and "12345" not in line


@pytest.mark.parametrize(
    ("dotted", "value"),
    [
        ("dataset.path", "abfss://container@account.dfs.core.windows.net/data"),
        ("dataset.path", "hdfs://namenode:8020/data/a@b"),
        ("dataset.path", "gs://anonymous@bucket/data"),
        ("tracking.uri", "postgresql://mlflow@db:5432/mlflow"),
        ("tracking.uri", "http://[::1]:5000"),
        ("tracking.tags", {"author": "me@example.org", "tokens": "1e9", "tokenizer": "bpe"}),
        ("source.query", "SELECT * FROM people WHERE job RLIKE 'https?://[^:]+:[^@]+@'"),
    ],
)
def test_what_only_looks_like_one_is_not(values: dict[str, Any], dotted: str, value: Any) -> None:  # noqa: F811
    from pipelines.config import parse

    parse(set_value(values, dotted, value), "x")


@pytest.mark.parametrize("name", ["\u2028", "\x85", "a\x1b[31mb", "\n"])
def test_a_name_ends_no_line_and_instructs_no_terminal(tmp_path: Path, name: str) -> None:
    changed = set_value(yaml.safe_load(PIPELINE), "source.tables.people.options", {name: "x"})
    (tmp_path / "x.yaml").write_text(json.dumps(changed))
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "x.yaml")
    (line,) = str(caught.value).splitlines()
    assert "csv has no option " in line and line.isprintable()
