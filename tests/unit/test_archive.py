import importlib
import os
import shutil
from pathlib import Path
from zipfile import ZipFile

import pytest

from pipelines.serving.model.logged_model import write_archive


def test_equal_files_give_equal_bytes_that_python_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "a" / "archived_package"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text("HERE = __file__\n")
    (package / "inner" / "__init__.py").touch()
    (package / "inner" / "wörter.txt").write_text("one\n")
    write_archive(package, tmp_path / "first.zip")
    copy = Path(shutil.copytree(package, tmp_path / "b" / "archived_package"))
    (copy / "__pycache__").mkdir()
    (copy / "__pycache__/inner.cpython-311.pyc").touch()
    for file in copy.rglob("*"):
        os.utime(file, (2**30, 2**30))
    (copy / "__init__.py").chmod(0o755)
    write_archive(copy, tmp_path / "second.zip")
    assert (tmp_path / "first.zip").read_bytes() == (tmp_path / "second.zip").read_bytes()
    with ZipFile(tmp_path / "first.zip") as archive:
        assert archive.namelist() == [f"archived_package/{name}" for name in ("__init__.py", "inner/__init__.py", "inner/wörter.txt")]
    monkeypatch.syspath_prepend(tmp_path / "first.zip")
    imported = importlib.import_module("archived_package").HERE
    assert imported == f"{tmp_path}/first.zip/archived_package/__init__.py"
