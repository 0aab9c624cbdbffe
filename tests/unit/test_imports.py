"""Large libraries are imported without looking for garbage, which afterwards is collected as before."""

import gc
from pathlib import Path

import pytest

from pipelines.runtime.imports import import_modules


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
