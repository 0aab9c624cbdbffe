"""Large libraries are imported without looking for garbage, which afterwards is collected as before; some, while a process starts."""

import gc
from contextlib import suppress
from pathlib import Path
from threading import Event

import pytest

from pipelines.runtime.imports import import_modules, meanwhile


@pytest.mark.parametrize("is_enabled", [True, False])
@pytest.mark.parametrize("text", ["import gc; SEEN = gc.isenabled()", "raise ValueError"])
def test_garbage_is_collected_after_an_import_as_before(
    is_enabled: bool, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"imported_{is_enabled}_{len(text)}"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    (gc.enable if is_enabled else gc.disable)()
    try:
        if "SEEN" in text:
            import_modules([name])
            assert __import__(name).SEEN is False
        else:
            with pytest.raises(ValueError):
                import_modules([name])
        assert gc.isenabled() is is_enabled
    finally:
        gc.enable()


def test_what_is_imported_meanwhile_is_there_at_the_end_of_the_block() -> None:
    begun, is_done = Event(), Event()
    with meanwhile(lambda: (begun.wait(60), is_done.set())[1]):
        assert not is_done.is_set()
        begun.set()
    assert is_done.is_set()


def fail() -> None:
    raise ImportError("no such module")


def test_the_error_of_an_import_is_the_block_s_unless_it_has_its_own() -> None:
    with pytest.raises(ImportError, match="no such module"), meanwhile(fail):
        pass
    with pytest.raises(KeyboardInterrupt), meanwhile(fail):
        raise KeyboardInterrupt
    waits = Event()
    with suppress(ValueError), meanwhile(lambda: waits.wait(60) and None):
        raise ValueError  # and the thread is not waited for
    waits.set()
