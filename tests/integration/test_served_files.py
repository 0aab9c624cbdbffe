"""A filed model whose files were altered does not answer: every load ends in one clear error.

LOCKSTEP_FLIPS=2000 in front of the command flips so many bits instead of 200.
"""

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import mlflow
import pytest
from filed import file_model
from safetensors.numpy import load_file, save_file

from pipelines.errors import CorruptError, LockstepError, MismatchError
from pipelines.serving.model.logged_model import read_model
from pipelines.serving.model.process import ModelProcess
from pipelines.tracking import download_weights

FLIPS = int(os.environ.get("LOCKSTEP_FLIPS", "200"))
RUNS_BEFORE = {"MLmodel", "entry.py"}
"""What is read or run before any comparison. MLflow says itself what it cannot make out of them."""

ARCHIVE = "code/pipelines.zip"
SHOW_IMPORTED = """
import json, sys
files = [module.__file__ for name, module in sys.modules.items() if name.partition(".")[0] == "pipelines"]
print(json.dumps(sorted({file.partition("/pipelines/")[0] for file in files})))
"""
"""Prints where the modules of the package come from."""


@pytest.fixture(scope="module", autouse=True)
def no_bytecode() -> Iterator[None]:
    """Python takes the bytecode of a file of the same second and size as that of the file, which these tests alter in less."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "dont_write_bytecode", True)
        yield


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a filed model."""
    paths = list(sys.path)
    folder = tmp_path_factory.mktemp("files")
    uri = file_model(folder).uri
    yield Path(mlflow.artifacts.download_artifacts(uri, dst_path=str(folder / "copy")))
    sys.path[:] = paths


@pytest.fixture
def copy(model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(model, tmp_path / "model"))


def load(folder: Path) -> None:
    mlflow.pyfunc.load_model(str(folder), suppress_warnings=True)


def test_every_flipped_bit_is_one_clear_error(model: Path) -> None:
    named = [model / name for name in ("digests.json", *json.loads((model / "digests.json").read_text())["files"])]
    files = [file for file in named if file.stat().st_size for _ in range(1 if file.name in RUNS_BEFORE else 4)]
    chance, ends = random.Random(7), dict.fromkeys(("ours", "mlflow"), 0)
    for number in range(FLIPS):
        file = files[number % len(files)]
        content = file.read_bytes()
        place = chance.randrange(len(content))
        flipped = content[:place] + bytes([content[place] ^ 1 << chance.randrange(8)]) + content[place + 1 :]
        file.write_bytes(flipped)
        try:
            load(model)
        except LockstepError as error:
            ends["ours"] += 1
            assert isinstance(error, CorruptError) and str(model) in str(error) and "\n" not in str(error)
        except Exception:
            ends["mlflow"] += 1
            assert file.name in RUNS_BEFORE, f"{file}, byte {place}"
        else:
            pytest.fail(f"{file}, byte {place}: from {content[place - 20 : place + 20]!r} to {flipped[place - 20 : place + 20]!r}")
        finally:
            file.write_bytes(content)
    assert ends["ours"] > 0.9 * FLIPS
    load(model)


@pytest.mark.parametrize("name", ["artifacts/weights.safetensors", "artifacts/manifest.json", "code/pipelines.zip", "digests.json"])
@pytest.mark.parametrize("share", [0, 0.5, None])
def test_a_truncated_or_missing_file_is_named(copy: Path, name: str, share: float | None) -> None:
    file = copy / name
    content = file.read_bytes()
    file.unlink()
    if share is not None:
        file.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(CorruptError, match=rf"{name}.*download it again, or log it again"):
        load(copy)


def test_other_weights_whose_file_s_digest_was_made_anew_are_found_too(copy: Path) -> None:
    weights = copy / "artifacts/weights.safetensors"
    save_file({name: values * 0 for name, values in load_file(weights).items()}, weights)
    with pytest.raises(CorruptError, match=r"weights.safetensors has SHA-256 \w{12}…, but \w{12}… was logged"):
        load(copy)
    write_digest(copy, "artifacts/weights.safetensors")
    with pytest.raises(CorruptError, match=r"weights.safetensors contains model \w{12}…, but \w{12}… was logged"):
        load(copy)


def test_weights_in_several_files_are_served_and_each_of_them_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.serving.model.logged_model.WEIGHTS_FILE_BYTES", 600)
    served = file_model(tmp_path)
    folder = Path(mlflow.artifacts.download_artifacts(served.uri, dst_path=str(tmp_path / "copy")))
    loaded = mlflow.pyfunc.load_model(str(folder), suppress_warnings=True)
    contents, _ = download_weights(served.config.tracking.uri, served.run_id)
    assert not loaded.predict(loaded.input_example)["refused"].any()
    files = sorted(file.name for file in (folder / "artifacts").glob("weights*"))
    assert files[0] == f"weights-00001-of-{len(files) - 1:05}.safetensors" and files[-1] == "weights.safetensors.index.json"
    assert len(contents) == len(files) - 1 > 2
    for name in files:
        file = folder / "artifacts" / name
        content = file.read_bytes()
        for damaged in (content[:-1], content[:-9] + bytes([content[-9] ^ 1]) + content[-8:], None):
            file.unlink() if damaged is None else file.write_bytes(damaged)
            with pytest.raises(CorruptError, match=rf"{name} (has SHA-256|is missing)"):
                load(folder)
            with pytest.raises(CorruptError, match=rf"{name}.*log (it|the model) again"):
                read_model(folder)
        file.write_bytes(content)
    load(folder)
    assert read_model(folder)[0].weights.keys() == served.weights.keys()


def write_digest(folder: Path, name: str) -> None:
    from hashlib import sha256

    digests = json.loads((folder / "digests.json").read_text())
    digests["files"][name] = sha256((folder / name).read_bytes()).hexdigest()
    (folder / "digests.json").write_text(json.dumps(digests))


def append_line(folder: Path, module: str, line: str) -> None:
    """Add a line to a module in the archive of the code, and leave everything else as it is."""
    with ZipFile(folder / ARCHIVE) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    contents[module] += f"{line}\n".encode()
    with ZipFile(folder / ARCHIVE, "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content)


@pytest.mark.full
def test_code_that_was_altered_or_added_does_not_run(copy: Path, tmp_path: Path) -> None:
    """In processes that import the model's own copy of the code, of MLflow and of this package."""
    speaking = "print('SPOKEN')"
    (copy / "code/__pycache__").mkdir()
    (copy / "code/__pycache__/user.cpython-311.pyc").touch()  # Python keeps what it compiled, and that is no fault
    answer = run_in_process(copy, SHOW_IMPORTED)
    assert "refused" in answer and json.loads(answer.splitlines()[-1]) == [str(copy / ARCHIVE)]
    before = (copy / ARCHIVE).read_bytes()
    append_line(copy, "pipelines/serving/model/predictor.py", speaking)
    append_line(copy, "pipelines/__init__.py", speaking)
    answer = run_in_process(copy)
    assert "CorruptError" in answer and "code/pipelines.zip has SHA-256" in answer and "SPOKEN" not in answer
    (copy / ARCHIVE).write_bytes(before)
    assert load_in_own_process(copy)["digest"] == json.loads((copy / "digests.json").read_text())["model"]
    for name in ("pandas", "pipelines", "torchmetrics"):
        (copy / f"code/{name}.py").write_text(f"{speaking}\nraise SystemExit('SPOKEN')\n")
    answer = run_in_process(copy)
    assert f"CorruptError: {copy}/code/pandas.py was not logged with the model" in answer and "SPOKEN" not in answer
    with pytest.raises(CorruptError, match=r"code/pandas\.py was not logged"):
        load_in_own_process(copy)


def load_in_own_process(folder: Path) -> Mapping[str, Any]:
    with ModelProcess(folder) as process:
        return process.about


def run_in_process(folder: Path, then: str = "") -> str:
    """Output of a process, without this checkout, that loads the model, has it predict, and runs the code `then`."""
    code = f"import mlflow; model = mlflow.pyfunc.load_model({str(folder)!r}); print(model.predict(model.input_example)){then}"
    keeping = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"PYTHONDONTWRITEBYTECODE": ""}
    answer = subprocess.run([sys.executable, "-c", code], cwd=folder.parent, env=keeping, capture_output=True, text=True, check=False)
    return answer.stdout + answer.stderr


@pytest.mark.full
def test_other_code_of_the_same_name_at_work_is_found(copy: Path) -> None:
    """This process has imported the package already, and Python imports no package twice; nor does one that has loaded a model."""
    append_line(copy, "pipelines/errors.py", "# of another version")
    write_digest(copy, ARCHIVE)
    with pytest.raises(MismatchError, match=r"pipelines/errors.py, imported in this process, has SHA-256 .* in a process of its own"):
        load(copy)
    code = f"\nmlflow.pyfunc.load_model({str(copy)!r})\nprint('SAME')\nmlflow.pyfunc.load_model({str(copy / 'other')!r})"
    shutil.copytree(copy, copy / "other")
    append_line(copy / "other", "pipelines/errors.py", "# of a third version")
    write_digest(copy / "other", ARCHIVE)
    answer = run_in_process(copy, code)
    assert "SAME" in answer and f"MismatchError: {copy / ARCHIVE}/pipelines/errors.py, imported in this process" in answer


@pytest.mark.full
def test_a_model_whose_modules_were_logged_as_files_still_loads(copy: Path) -> None:
    with ZipFile(copy / ARCHIVE) as archive:
        archive.extractall(copy / "code")
    (copy / ARCHIVE).unlink()
    shutil.copy(Path(__file__).parents[1] / "earlier_entry.py", copy / "entry.py")
    digests = json.loads((copy / "digests.json").read_text())
    del digests["files"][ARCHIVE]
    (copy / "digests.json").write_text(json.dumps(digests))
    for file in (copy / "entry.py", *(file for file in (copy / "code").rglob("*") if file.is_file())):
        write_digest(copy, file.relative_to(copy).as_posix())
    load(copy)
    answer = run_in_process(copy, SHOW_IMPORTED)
    assert "refused" in answer and json.loads(answer.splitlines()[-1]) == [str(copy / "code")]
    assert load_in_own_process(copy)["pipeline"] == "served"
    with (copy / "code/pipelines/serving/model/predictor.py").open("a") as module:
        module.write("\n")
    with pytest.raises(CorruptError, match=r"predictor\.py has SHA-256"):
        load(copy)
