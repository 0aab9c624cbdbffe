"""The text that names a version is hashed in pieces."""

import json

import pytest

from pipelines.etl import identity


@pytest.mark.parametrize("lines_at_once", [1, 2, 10_000])
@pytest.mark.parametrize("sources", [{}, {"t": []}, {"b": ["é", 'a "quoted" line\n'], "a": ["x"] * 5, "c": []}])
def test_pieces_of_the_text_are_the_text(lines_at_once: int, sources: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "LINES_AT_ONCE", lines_at_once)
    inputs = {"config": {"z": 1, "a": [None, 2.5]}, "format": 2, "spark": "4", "time zone": "UTC"}
    lines = {name: iter(values) for name, values in sources.items()}
    assert "".join(identity._json_texts({**inputs, "sources": lines})) == json.dumps({**inputs, "sources": sources}, sort_keys=True)
