"""Weights from files and folders: which of them a model takes, what is said of the others, and what is refused."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from trainings import open_dataset, training

from pipelines.config import Config, parse
from pipelines.config.load import from_command_line
from pipelines.config.train.init_from import InitFrom
from pipelines.errors import ConfigError, LockstepError, TrainingError
from pipelines.launch.initial_weights import add_digest, initial_weights, join_place, read_weight_files
from pipelines.launch.training_progress import TrainingProgress
from pipelines.launch.verify import decisive_settings, place_config
from pipelines.runtime.weights import from_bytes, model_digest
from pipelines.tasks.bind import build_task
from pipelines.train.initial_model import fit_weights, rename

WEIGHTS = {"a.weight": torch.ones(2, 3), "a.bias": torch.zeros(2), "head.weight": torch.ones(5, 2)}


def line(do: Callable[[], Any], kind: type[LockstepError] = TrainingError) -> str:
    with pytest.raises(kind) as refused:
        do()
    assert "\n" not in str(refused.value)
    return str(refused.value)


def write(path: Path, weights: dict[str, Tensor] = WEIGHTS) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(weights, path)
    return str(path)


def write_shards(folder: Path) -> str:
    """A folder as Hugging Face's libraries write it."""
    parts = {"model-00001-of-00002.safetensors": ["a.weight"], "model-00002-of-00002.safetensors": ["a.bias", "head.weight"]}
    for file, names in parts.items():
        write(folder / file, {name: WEIGHTS[name] for name in names})
    index = {"metadata": {}, "weight_map": {name: file for file, names in parts.items() for name in names}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return str(folder)


def test_a_file_and_folders_of_equal_weights_have_one_digest(tmp_path: Path) -> None:
    write(tmp_path / "whole" / "model.safetensors")
    write(tmp_path / "logged" / "weights.safetensors")
    sources = (
        InitFrom(file=write(tmp_path / "x.safetensors")),
        InitFrom(file=f"file://{tmp_path}/x.safetensors"),
        InitFrom(folder=str(tmp_path / "whole")),
        InitFrom(folder=f"{tmp_path}/logged/"),
        InitFrom(folder=write_shards(tmp_path / "shards")),
    )
    assert {model_digest(read_weight_files(source)) for source in sources} == {model_digest(WEIGHTS)}


def overwrite(content: bytes) -> Callable[[Path], Any]:
    return lambda file: file.write_bytes(content)


FILE_FAULTS: dict[str, Callable[[Path], Any]] = {
    "no file": Path.unlink,
    "cut": lambda file: file.write_bytes(file.read_bytes()[:50]),
    "no weights": overwrite(b"<html>" * 20),
    "pointer": overwrite(b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n"),
    "pickle": lambda file: torch.save(WEIGHTS, file),
}


def replace_index(old: str, new: str) -> Callable[[Path], Any]:
    return lambda folder: (index := folder / "model.safetensors.index.json").write_text(index.read_text().replace(old, new))


def leave_a_pickle(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()
    torch.save(WEIGHTS, folder / "pytorch_model.bin")


SECOND = "model-00002-of-00002.safetensors"
FOLDER_FAULTS: dict[str, Callable[[Path], Any]] = {
    "no folder": lambda folder: (shutil.rmtree(folder), folder.write_text("x")),
    "empty folder": lambda folder: (shutil.rmtree(folder), folder.mkdir()),
    "folder of a pickle": leave_a_pickle,
    "no shard": lambda folder: (folder / SECOND).unlink(),
    "a tensor too few": lambda folder: write(folder / SECOND, {"a.bias": WEIGHTS["a.bias"]}),
    "broken index": replace_index("{", "("),
    "empty index": lambda folder: (folder / "model.safetensors.index.json").write_text('{"weight_map": {}}'),
    "index of lists": replace_index(f'"{SECOND}"', f'["{SECOND}"]'),
    "index of pickles": replace_index(SECOND, "../model.bin"),
}


def damage(folder: Path, name: str) -> InitFrom:
    """A file or a folder with a fault."""
    if name in FILE_FAULTS:
        file = Path(write(folder / "x.safetensors"))
        FILE_FAULTS[name](file)
        return InitFrom(file=str(file))
    if name in FOLDER_FAULTS:
        shards = Path(write_shards(folder / "shards"))
        FOLDER_FAULTS[name](shards)
        return InitFrom(folder=str(shards))
    return InitFrom(file="nowhere://x.safetensors")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no file", r"x.safetensors does not exist; name a file or folder that does$"),
        ("cut", r"x.safetensors cannot be read as safetensors: .*; download or write it again$"),
        ("no weights", r"x.safetensors cannot be read as safetensors: .*; download or write it again$"),
        ("pointer", r"x.safetensors is a pointer of Git LFS instead of the weights; fetch them by git lfs pull$"),
        ("pickle", r"x.safetensors is a pickle, in spite of its name; convert it where it is trusted, by safetensors.torch.save_file\("),
        ("no folder", r"shards, which is no folder; name a folder, or set file to a file$"),
        ("empty folder", r"which has neither model.safetensors nor model.safetensors.index.json; name a folder that has one$"),
        ("folder of a pickle", r"which has pytorch_model.bin, a pickle, and no model.safetensors; convert it"),
        ("no shard", r"model-00002-of-00002.safetensors does not exist; name a file or folder that does$"),
        ("a tensor too few", r"model-00002-of-00002.safetensors lacks head.weight, which .*index.json says it has; download both again$"),
        ("broken index", r"model.safetensors.index.json is no index of safetensors files; download it again$"),
        ("empty index", r"model.safetensors.index.json is no index of safetensors files; download it again$"),
        ("index of lists", r"model.safetensors.index.json is no index of safetensors files; download it again$"),
        ("index of pickles", r"index.json names ../model.bin, which is no .safetensors file beside it; convert it"),
        ("no store", r"nowhere://x.safetensors: .*; give a local path or a URI"),
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path: Path, name: str, message: str) -> None:
    assert re.search(message, line(lambda: read_weight_files(damage(tmp_path, name))))
    # Each remedy ends at a file or a folder that is whole.
    assert len(read_weight_files(InitFrom(folder=write_shards(tmp_path / "again")))) == len(WEIGHTS)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(3, 2)
        self.head = nn.Linear(2, 4)


def test_without_strict_what_fits_is_taken_and_the_rest_is_said() -> None:
    fit = fit_weights(Model(), {**WEIGHTS, "steps": torch.tensor(3)}, InitFrom(file="x.safetensors", strict=False))
    assert fit.to_values() == {
        "origin": "x.safetensors",
        "loaded": ["a.bias", "a.weight"],
        "initialised": {"head.weight": [4, 2], "head.bias": [4]},
        "unused": {"head.weight": [5, 2], "steps": []},
        "casts": {},
    }
    assert fit.describe() == (
        "starts from x.safetensors: 2 of the model's 4 tensors are loaded; 2 stay as initialised: head.weight (4, 2), head.bias (4); "
        "2 others are unused: head.weight (5, 2), steps ()"
    )


def test_many_are_counted_and_the_first_are_named() -> None:
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(9)))
    fit = fit_weights(model, {"8.bias": torch.zeros(2)}, InitFrom(file="x.safetensors", strict=False))
    assert "17 stay as initialised: 0.weight (2, 2), 0.bias (2), 1.weight (2, 2) and 14 more" in fit.describe()


def test_other_floats_are_cast_and_said_and_integers_are_no_floats() -> None:
    weights = {"weight": torch.full((2, 3), 1.5, dtype=torch.bfloat16), "bias": torch.zeros(2, dtype=torch.int64)}
    fit = fit_weights(nn.Linear(3, 2), weights, InitFrom(file="x.safetensors", strict=False))
    assert fit.weights["weight"].dtype == torch.float32 and bool((fit.weights["weight"] == 1.5).all())
    assert fit.describe().endswith("1 are cast from bfloat16 to float32")
    assert list(fit.initialised) == ["bias"]


def test_names_are_replaced_from_their_beginning_by_the_first_rule_that_matches() -> None:
    rules = {"encoder\\.layer\\.(\\d+)\\.": "blocks.\\1.", "encoder\\.": "", "head": "old_head"}
    names = ["encoder.layer.12.weight", "encoder.norm", "head.bias", "my.head.bias"]
    renamed = rename(names, InitFrom(file="x.safetensors", rename=rules))
    assert list(renamed) == ["blocks.12.weight", "norm", "old_head.bias", "my.head.bias"]
    assert list(renamed.values()) == names


def test_with_strict_every_name_and_shape_must_be_the_model_s() -> None:
    own_weights = dict(Model().state_dict())
    assert fit_weights(Model(), own_weights, InitFrom(file="x.safetensors")).weights.keys() == own_weights.keys()
    refused = line(lambda: fit_weights(Model(), WEIGHTS, InitFrom(file="x.safetensors")))
    assert "x.safetensors, whose weights differ from this model's in head.bias, head.weight; names and shapes must be the same" in refused
    assert refused.endswith("or set train.init_from.strict to false, which loads the weights that fit")
    moved = {f"model.{name}": values for name, values in own_weights.items()}
    fit = fit_weights(Model(), moved, InitFrom(file="x.safetensors", rename={"model\\.": ""}))
    assert fit.weights.keys() == own_weights.keys() and not fit.unused
    integers = {**own_weights, "a.weight": own_weights["a.weight"].to(torch.int8)}
    refused = line(lambda: fit_weights(Model(), integers, InitFrom(file="x.safetensors")))
    assert refused.endswith("whose a.weight is int8, and the model's is float32; convert the file, or set train.init_from.strict to false")
    assert "a.weight" in fit_weights(Model(), integers, InitFrom(file="x.safetensors", strict=False)).initialised


def test_a_uri_keeps_its_options_at_its_end() -> None:
    options = "?endpoint_override=127.0.0.1:9000&scheme=http"
    assert InitFrom(file=f"s3://b/x.safetensors{options}").is_given
    with pytest.raises(ConfigError, match=r"only .safetensors files are read"):
        InitFrom(file=f"s3://b/x.bin{options}")
    assert join_place(f"s3://b/p/{options}", "x.safetensors") == f"s3://b/p/x.safetensors{options}"
    assert join_place("/here/why?/", "x.safetensors") == "/here/why?/x.safetensors"


@pytest.mark.parametrize(
    ("weights", "changes", "message", "remedy"),
    [
        (
            {"b.weight": torch.ones(2, 3)},
            {},
            "of whose tensors none fits the model: there are b.weight (2, 3), and the model has a.weight (2, 3), a.bias (2), "
            "head.weight (4, 2) and 1 more; set train.init_from.rename, or start from other weights",
            {"rename": {"b": "a"}},
        ),
        (
            WEIGHTS,
            {"rename": {"aa": "b"}},
            "no name in x.safetensors begins with aa, or an earlier rule has it; names are a.bias, a.weight, head.weight; correct the "
            "rule, or remove it",
            {"rename": {}},
        ),
        (
            {"a.weight": torch.ones(2, 3), "b.weight": torch.ones(2, 3)},
            {"rename": {"[ab]": "a"}},
            "makes a.weight of both a.weight and b.weight of x.safetensors; make different names of them",
            {"rename": {"b": "c"}},
        ),
    ],
    ids=["nothing fits", "idle rule", "two become one"],
)
def test_what_does_not_fit_at_all_is_one_line(weights: dict[str, Tensor], changes: Any, message: str, remedy: Any) -> None:
    settings = {"file": "x.safetensors", "strict": False, **changes}
    assert line(lambda: fit_weights(Model(), weights, InitFrom(**settings))).endswith(message)
    assert fit_weights(Model(), weights, InitFrom(**{**settings, **remedy})).weights


@pytest.mark.parametrize(
    ("values", "message", "remedy"),
    [
        ({"file": "a.bin"}, "file is a.bin, but only .safetensors files are read", {"file": "a.safetensors"}),
        ({"strict": False}, "names no weights; give it a run, a file or a folder", {"strict": False, "run": "a1"}),
        ({"run": "a1", "folder": "b"}, "run is a1 and folder is b; keep one of them", {"folder": "b"}),
        ({"run": "a1", "digest": "00"}, "digest is 00, but run is a1, which has logged its own; remove digest", {"run": "a1"}),
        (
            {"run": "a1", "rename": {"(": ""}},
            "( to '' is no regular expression with its replacement: ",
            {"run": "a1", "rename": {"\\(": ""}},
        ),
        ({"run": "a1", "rename": {"a{99999999999999}": ""}}, "is no regular expression with its replacement: ", {"run": "a1"}),
        ({"run": "a1", "rename": {"a": "\\2"}}, "a to '\\\\2' is no regular expression with its replacement: ", {"run": "a1"}),
    ],
)
def test_settings_that_mean_nothing_are_one_line(values: Any, message: str, remedy: Any) -> None:
    assert message in line(lambda: InitFrom(**values), ConfigError)
    InitFrom(**remedy)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    training(folder, rows=200)
    return folder


def random_weights(config: Config) -> dict[str, Tensor]:
    return dict(build_task(config.task, open_dataset(config).manifest).model().state_dict())


def test_the_short_form_is_what_runs_have_recorded(home: Path) -> None:
    config, section = training(home, init_from="a1b2"), training(home, init_from={"run": "a1b2"})
    for same in (config, section):
        assert same.model_dump(mode="json")["train"]["init_from"] == "a1b2"
        assert same.model_identity == config.model_identity
    assert training(home).model_dump(mode="json")["train"]["init_from"] == ""
    assert training(home, init_from={"run": "a1b2", "strict": False}).model_identity != config.model_identity


def test_a_flag_is_the_id_of_a_run_as_it_stands(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path))
    file = tmp_path / "x.yaml"
    file.write_text(json.dumps(training(home).model_dump(mode="json", by_alias=True, exclude_unset=True)))
    digits = "01234567890123456789012345678901"
    assert from_command_line("train", [str(file), "--train.init_from", digits]).train.init_from.run == digits
    config = from_command_line("train", [str(file), "--train.init_from.file", "a.safetensors", "--train.init_from.strict", "false"])
    assert (config.train.init_from.file, config.train.init_from.strict) == (str(tmp_path / "a.safetensors"), False)
    config = from_command_line("train", [str(file), "--train.init_from", "{folder: b}"])
    assert config.train.init_from.folder == str(tmp_path / "b")


def test_the_identity_has_the_digest_and_not_the_place(home: Path, tmp_path: Path) -> None:
    weights = random_weights(training(home))
    first, second = (write(tmp_path / name, weights) for name in ("a.safetensors", "b/c.safetensors"))
    write(tmp_path / "folder" / "model.safetensors", weights)
    other = write(tmp_path / "d.safetensors", {name: values + 1 for name, values in weights.items()})
    sources = [{"file": first}, {"file": second}, {"folder": str(tmp_path / "folder")}, {"file": other}, {"file": first, "strict": False}]
    a, b, c, d, e = (add_digest(training(home, init_from=source)).model_identity for source in sources)
    assert a == b == c
    assert len({a, d, e, training(home).model_identity}) == 4
    noted = add_digest(training(home, init_from={"file": first}))
    assert noted.train.init_from.digest == model_digest(weights)
    assert parse(noted.model_dump(mode="json", by_alias=True), "run", recorded=True).model_identity == a


def test_weights_of_another_digest_are_refused(home: Path, tmp_path: Path) -> None:
    weights = random_weights(training(home))
    file = write(tmp_path / "a.safetensors", weights)
    config = add_digest(training(home, init_from={"file": file}))
    content = initial_weights(config, open_dataset(config))
    assert content is not None and model_digest(from_bytes(content.content)) == model_digest(weights)
    write(tmp_path / "a.safetensors", {name: values + 1 for name, values in weights.items()})
    refused = line(lambda: initial_weights(config, open_dataset(config)))
    assert re.search(r"init_from.digest is \w{12}, but the weights in .*a.safetensors have \w{64}; restore them, or remove digest", refused)
    assert initial_weights(training(home, init_from={"file": file}), open_dataset(config))
    write(tmp_path / "a.safetensors", weights)
    assert initial_weights(config, open_dataset(config))


def test_a_verification_takes_the_place_of_its_config_and_the_digest_of_the_run(home: Path, tmp_path: Path) -> None:
    weights = random_weights(training(home))
    recorded = add_digest(training(home, strategy="exact", init_from={"file": write(tmp_path / "a.safetensors", weights)}))
    moved = training(home, strategy="exact", init_from={"folder": str(tmp_path / "elsewhere")})
    placed = place_config(recorded, moved, "a1b2", TrainingProgress()).train.init_from
    assert (placed.file, placed.folder, placed.digest) == ("", str(tmp_path / "elsewhere"), model_digest(weights))
    assert decisive_settings(recorded) == decisive_settings(moved)
    assert line(lambda: initial_weights(place_config(recorded, moved, "a1b2", TrainingProgress()), open_dataset(moved)))
