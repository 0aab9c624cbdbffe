"""Charts of columns with extreme values, what encoders say of themselves, and the page about thousands of columns."""

import json
from base64 import b64decode, b64encode
from dataclasses import replace
from datetime import date
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from filed import CONFIG, fit_manifest, raw_rows
from fitting import fit, gather_statistics
from page_parts import render_text
from PIL import Image

from pipelines.config import parse
from pipelines.data.versions.data_profile import TEXT_LENGTH, Survey
from pipelines.data.versions.manifest import FittedEncoder, SplitSummary
from pipelines.etl.summary import column_profile
from pipelines.report.data_profile.column_profiles import describe_columns, describe_encoder, name_pieces
from pipelines.report.data_profile.description import describe_data
from pipelines.report.data_profile.page import MOST_FINDINGS, data_page

WORDS = ["b", "a", "b", "c", None]
NUMBERS = [1.0, 2.0, 3.0, 4.0, None]
CHART = "{{ distribution(chart, name) }}"


def survey_of_column(raw: pa.Table, name: str) -> Survey:
    """Survey of an ETL of these rows, with a sample of one column."""
    config = parse(CONFIG, "test")
    train = SplitSummary(rows=len(raw), parts=1, row_groups=1, bytes=1, decoded_bytes=1)
    manifest = fit_manifest(config.dataset, raw).model_copy(update={"splits": {"train": train}})
    return Survey(config, manifest, {}, {"train": raw.select([name])}, np.empty((0, 3), np.int64), {}, {})


def chart(name: str, values: pa.Array) -> dict[str, Any]:
    """Chart of a column with these values, in turn."""
    raw = raw_rows()
    values = pa.concat_arrays([values] * len(raw)).slice(0, len(raw))
    raw = raw.set_column(raw.column_names.index(name), name, values)
    columns = describe_columns(survey_of_column(raw, name))
    return next(column["chart"] for column in columns if column["name"] == name)


@pytest.mark.parametrize(
    ("settings", "values", "description"),
    [
        ({"encoder": "standardize", "impute": "keep"}, NUMBERS, "(x − 2.5) / 1.118, with NaN where it is missing; float32"),
        ({"encoder": "standardize", "impute": "median"}, NUMBERS, "(x − 2.5) / 1.118, with 2.5 where it is missing; float32"),
        ({"encoder": "quantile", "bins": 2}, NUMBERS, "the number of one of 2 bins, with edges 3; int32"),
        ({"encoder": "normal_quantile"}, NUMBERS[:4], "its quantile among 4 points, as a normally distributed number; float32"),
        ({"encoder": "minmax"}, NUMBERS[:4], "minimum 1, span 3; float32"),
        ({"encoder": "hash", "buckets": 7}, WORDS, "buckets 7; int32"),
        ({"encoder": "vocabulary"}, WORDS, "3 values have numbers from 1 (b, a, c); 0 is all else; int32"),
        ({"encoder": "label"}, WORDS, "3 classes, in this order: a, b, c; int64"),
        ({"encoder": "binary"}, [0.0, 1.0], "1 for true, 0 for false; uint8"),
        ({"encoder": "sequence", "length": 2}, WORDS, "the first 2 words, of which 3 have numbers (b, a, c); int32 of shape [2]"),
        (
            {"encoder": "terms", "words": [1], "min_count": 1, "length": 2},
            WORDS,
            "at most 2 of the 3 terms that have numbers (b, a, c), with their counts; int32 of shape [2, 2]",
        ),
        ({"encoder": "bytes", "length": 3}, WORDS, "windows of 3 tokens, of which there are 257; uint16 of shape [4]"),
        (
            {"encoder": "words", "length": 3, "vocabulary": 2},
            ["b b\na", "\n\n"],
            "windows of 3 words, of which 2 have tokens (\\n, b); 1 of the 6 words of the training split (16.67%) are unknown; uint8 "
            "of shape [4]",
        ),
    ],
    ids=lambda settings: settings["encoder"] if isinstance(settings, dict) else "",
)
def test_an_encoder_describes_itself(settings: dict[str, Any], values: list[Any], description: str) -> None:
    fitted = fit_column(settings, values)
    assert describe_encoder("x", fitted) == f"{settings['encoder']}: {description}"


@pytest.mark.parametrize(
    ("encoder", "pieces"),
    [("words", "words"), ("bpe", "words"), ("characters", "characters"), ("vocabulary", "values"), ("sequence", "words")],
)
def test_the_page_says_what_is_counted(encoder: str, pieces: str) -> None:
    fitted = fit_column({"encoder": encoder, **({} if encoder == "vocabulary" else {"length": 3})}, ["a a", "a"])
    assert name_pieces([fitted]) == pieces


def fit_column(settings: dict[str, Any], values: list[Any]) -> FittedEncoder:
    """An encoder fitted to one column, beside what else a dataset must have."""
    raw = pa.table({"x": values, "other": range(len(values))})
    if settings["encoder"] == "label":
        return fit({"other": "identity"}, {"x": settings}, raw)["x"]
    is_packed = settings["encoder"] in ("bytes", "characters", "bpe", "words")
    return fit({"x": settings}, {} if is_packed else {"other": "identity"}, raw)["x"]


@pytest.mark.parametrize("encoder", ["words", "characters"])
def test_texts_of_one_word_are_not_one_text(encoder: str) -> None:
    assert constant_columns(encoder, ["aa", "aa aa" if encoder == "words" else "a"] * 100) == []
    assert constant_columns(encoder, ["aa"] * 200) == ["text has the same value in all 200 sampled rows of train"]
    assert constant_columns(encoder, ["a" * TEXT_LENGTH] * 200) == [], "the sample has only their beginnings"


def constant_columns(encoder: str, texts: list[str]) -> list[str]:
    """What the page says of columns with one value, of a training split of these texts."""
    text_dataset = {"path": "data", "features": {"text": {"encoder": encoder, "length": 3}}}
    config, raw = parse({**CONFIG, "dataset": text_dataset, "task": {"kind": "language"}}, "test"), pa.table({"text": texts})
    profile = {name: column_profile(statistics) for name, statistics in gather_statistics(config.dataset, raw).items()}
    train = SplitSummary(rows=len(raw), parts=1, row_groups=1, bytes=1, decoded_bytes=1)
    manifest = fit_manifest(config.dataset, raw).model_copy(update={"splits": {"train": train}, "profile": profile})
    described = describe_data(Survey(config, manifest, {}, {"train": raw}, np.empty((0, 3), np.int64), {}, {}))
    return [finding["text"] for finding in described["findings"] if finding["kind"] == "constant"]


@pytest.mark.parametrize(
    ("days", "ends"),
    [
        ([date(2020, 1, 1), date(9999, 12, 31)], ["2020-01-01", "9999-12-31"]),
        ([date(1, 1, 1)], ["0001-01-01", "0001-01-02"]),
        ([date(1969, 12, 31), date(1970, 1, 1)], ["1969-12-31", "1970-01-01"]),
    ],
)
def test_dates_that_stand_for_never_are_drawn(days: list[date], ends: list[str]) -> None:
    column_chart = chart("born", pa.array(days))
    assert column_chart["ends"] == ends and "<rect" in render_text(CHART, chart=column_chart, name="born")


@pytest.mark.parametrize("values", [[-1.7e308, 1.7e308], [1.7e308], [5e-324, 0.0], [2.0**60, -(2.0**60), 0.5]])
def test_the_largest_and_smallest_numbers_are_drawn(values: list[float]) -> None:
    with np.errstate(all="ignore"):
        column_chart = chart("x", pa.array(values, pa.float64()))
    assert sum(column_chart["shares"]["train"]) == pytest.approx(1, abs=1e-3)
    assert "<rect" in render_text(CHART, chart=column_chart, name="x")


def test_a_page_of_thousands_of_columns_says_how_many_it_shows() -> None:
    raw = raw_rows()
    columns = describe_columns(survey_of_column(raw, "word"))
    described = {
        "findings": [{"kind": "drift", "text": f"column {number} drifts", "columns": []} for number in range(1_000)],
        "columns": columns, "raw_columns": 5_000, "sampled": {"train": len(raw)}, "rows": {"train": len(raw)}, "bytes": {"train": 1},
        "warnings": [], "refused": [], "seconds": {}, "spark": [], "sources": [], "key": [], "split": {}, "expect": {}, "versions": {},
        "balance": None, "event_log": "", "run_id": "", "query": "", "path": "data", "digest": "0" * 64, "version": "0" * 12,
        "created": "2026-11-25T00:00:00", "pipeline": "wide", "samples": {"columns": [], "rows": [], "pictures": []},
    }  # fmt: skip
    page = data_page(described)
    assert f"The first {len(columns)} of 5,000 columns" in page and "<b>5,000</b>" in page
    assert page.count(" drifts<") == MOST_FINDINGS and "950 more are in data.json" in page


def test_the_page_shows_rows_that_were_read_and_refused() -> None:
    raw = raw_rows()
    survey = survey_of_column(raw, "word")
    gif = BytesIO()
    Image.new("L", (4, 2)).save(gif, "GIF")
    record = json.dumps({"content": b64encode(gif.getvalue() + bytes(99)).decode(), "path": "cats/1.png"})
    refused = {"picture: image cannot encode a value: it is a GIF picture": record, "a line": "x" * 999}
    manifest = survey.manifest.model_copy(update={"quarantined": dict.fromkeys(refused, 1)})
    changed = replace(survey, manifest=manifest, refused=refused)
    description = describe_data(changed)
    assert (description["samples"]["columns"], description["samples"]["rows"]) == (
        ["word"],
        [[word or ""] for word in raw["word"].to_pylist()[:5]],
    )
    by_reason = {entry["reason"][:6]: entry for entry in description["refused"]}
    assert '"path": "cats/1.png"' in by_reason["pictur"]["record"] and len(by_reason["a line"]["record"]) < 310
    assert Image.open(BytesIO(b64decode(by_reason["pictur"]["picture"]))).size == (96, 48) and not by_reason["a line"]["picture"]
    page = data_page(json.loads(json.dumps(description)))
    assert "Samples" in page and page.count('src="data:image/png;base64,') == 1 and "cats/1.png" in page
    settings = changed.config.model_copy(update={"tracking": changed.config.tracking.model_copy(update={"data_samples": 0})})
    page = data_page(describe_data(replace(changed, config=settings)))
    assert "Samples" not in page and "cats/1.png" not in page and "data:image/png" not in page
