"""The folder of an export appears whole or not at all, and an earlier one stays until then."""

import os
from pathlib import Path

import pytest

from pipelines.serving.export.export_folder import commit_folder


def write(folder: Path, content: str) -> None:
    with commit_folder(folder) as draft:
        (draft / "model").write_text(content)


def test_an_export_replaces_an_earlier_one(tmp_path: Path) -> None:
    for content in ("first", "second"):
        write(tmp_path / "exports/digits", content)
        assert (tmp_path / "exports/digits/model").read_text() == content
    assert os.listdir(tmp_path / "exports") == ["digits"]


def test_one_that_fails_or_is_broken_off_at_any_point_leaves_the_earlier_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "digits"
    write(folder, "first")
    with pytest.raises(KeyboardInterrupt), commit_folder(folder):
        raise KeyboardInterrupt
    replace, calls = os.replace, list[str]()

    def broken_off(source: Path, target: Path) -> None:
        calls.append(str(source))
        if len(calls) == 2:
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", broken_off)
    with pytest.raises(KeyboardInterrupt):
        write(folder, "second")
    assert len(calls) == 3 and os.listdir(tmp_path) == ["digits"] and (folder / "model").read_text() == "first"
