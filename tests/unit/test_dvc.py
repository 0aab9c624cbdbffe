"""What a manifest says of files that DVC tracks. The records are as DVC 3.67 writes them."""

import subprocess
from pathlib import Path

import pytest

from pipelines.data.sources.files.dvc import find_dvc_output

FOLDER = "0e956a1a1a46f329391da8c0b949ff17.dir"
STAGE = "bc4e9a430d54e4d5fc124a0470dd619f.dir"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A checkout with a folder that was added, a file that was added, and the output of a stage."""
    (tmp_path / ".dvc").mkdir()
    (tmp_path / "data/raw").mkdir(parents=True)
    (tmp_path / "data/raw/1.csv").write_text("a,b\n")
    (tmp_path / "data/raw.dvc").write_text(f"outs:\n- md5: {FOLDER}\n  size: 4\n  nfiles: 1\n  hash: md5\n  path: raw\n")
    (tmp_path / "data/one.csv.dvc").write_text("outs:\n- md5: 3ecfad755fa825f7a17c5526ec44e651\n  size: 4\n  hash: md5\n  path: one.csv\n")
    (tmp_path / "dvc.lock").write_text(
        f"schema: '2.0'\nstages:\n  make:\n    cmd: x\n    outs:\n    - path: out\n      hash: md5\n      md5: {STAGE}\n      size: 4\n"
    )
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "data/raw.dvc", "dvc.lock")
    git(tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "data")
    return tmp_path


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=True).stdout.strip()


def note(place: Path, total_bytes: int | None = 4) -> str:
    output = find_dvc_output(place)
    return output.note(place, total_bytes) if output else ""


def test_folders_files_in_them_and_outputs_of_stages_have_a_commit(project: Path) -> None:
    commit = git(project, "rev-parse", "HEAD")
    assert note(project / "data/raw") == f"DVC has these files as {FOLDER} in raw.dvc of commit {commit}"
    assert note(project / "data/raw/1.csv", 2) == f"DVC has these files as {FOLDER} in raw.dvc of commit {commit}"
    assert note(project / "out/made.csv") == f"DVC has these files as {STAGE} in dvc.lock of commit {commit}"


def test_files_that_were_altered_and_records_that_were_not_committed_are_named(project: Path) -> None:
    assert note(project / "data/raw", 9).endswith(", but they have 9 bytes by now and had 4")
    assert note(project / "data/one.csv").endswith(" in one.csv.dvc")
    record = project / "data/raw.dvc"
    record.write_text(record.read_text().replace("0e95", "ffff"))
    assert "ffff" in note(project / "data/raw") and "not committed as it is; the last commit of it is " in note(project / "data/raw")


@pytest.mark.parametrize("content", ["", "outs: 7", "outs:\n- path: raw\n", "[", "stages: x", "outs:\n- {md5: x}\n"])
def test_a_record_that_dvc_does_not_write_says_nothing(project: Path, content: str) -> None:
    (project / "data/raw.dvc").write_text(content)
    assert note(project / "data/raw") == ""


def test_nothing_is_said_of_other_files(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert note(project / "data/other.csv") == ""
    assert note(tmp_path_factory.mktemp("elsewhere") / "raw") == ""
