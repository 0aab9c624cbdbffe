"""The shares of splits beside those that were asked for: what is said, and what is refused."""

import pytest

from pipelines.config.dataset.dataset import Dataset
from pipelines.data.versions.manifest import Shares
from pipelines.errors import SourceError
from pipelines.etl.splits.shares import SplitUnit, check_shares, compare_window_shares, describe_difference, is_notable, percent

ASKED = {"train": 0.7, "validation": 0.1, "test": 0.2}
REPEATED = SplitUnit("different rows", 9_500, 3_322, "validation", "one row repeats 3,322 times", "keep one of each")


def dataset(**settings: object) -> Dataset:
    return Dataset.model_validate({"path": "data", "features": {"x": "identity"}, "target": {"y": "identity"}, **settings})


def test_a_block_is_named_with_what_it_moved() -> None:
    shares = describe_difference(ASKED, {"train": 0.49, "validation": 0.36, "test": 0.15}, 12_800, REPEATED)
    differing = "validation has 36 %, asked 10 %, test has 15 %, asked 20 %, train has 49 %, asked 70 %"
    assert shares.said == f"{differing}: one row repeats 3,322 times; keep one of each"
    assert 0.23 < shares.beyond_chance < 0.26
    assert check_shares(shares, dataset()) is shares, "said, and not refused"


def test_a_small_table_has_other_shares_by_chance() -> None:
    unit = SplitUnit("rows", 20, 1, "train", "one key has 1 rows", "give more rows")
    shares = describe_difference({"train": 0.8, "validation": 0.1, "test": 0.1}, {"train": 0.85, "validation": 0.05, "test": 0.1}, 20, unit)
    assert "train has 85 %, asked 80 %" in shares.said and "validation has 5 %, asked 10 %: chance, with only 20 rows; " in shares.said
    assert "dataset.split: {by: column}" in shares.said
    assert shares.beyond_chance == 0


@pytest.mark.parametrize(
    ("actual_share", "rows", "off"),
    [
        ({"train": 0.70, "validation": 0.10, "test": 0.20}, 1_000, False),
        ({"train": 0.68, "validation": 0.12, "test": 0.20}, 1_000, False),
        ({"train": 0.66, "validation": 0.14, "test": 0.20}, 1_000, True),
        ({"train": 0.61, "validation": 0.39}, 1_000, True),
    ],
)
def test_what_is_worth_a_word(actual_share: dict[str, float], rows: int, off: bool) -> None:
    assert is_notable(ASKED, actual_share, rows) == off


@pytest.mark.parametrize(("actual_share", "rows", "off"), [(0.004, 100_000, True), (0.004, 500, False), (0.018, 100_000, False)])
def test_of_a_small_share_less_is_worth_a_word(actual_share: float, rows: int, off: bool) -> None:
    assert is_notable({"train": 0.98, "validation": 0.02}, {"train": 1 - actual_share, "validation": actual_share}, rows) == off


def test_beyond_the_bound_it_is_refused() -> None:
    shares = Shares(asked=ASKED, came={"train": 0.2, "validation": 0.7, "test": 0.1}, beyond_chance=0.59, said="so it is; do that")
    with pytest.raises(
        SourceError, match=r"^so it is; do that; or raise dataset.max_share_error: .* 59 % beyond chance, and 30 % are allowed"
    ):
        check_shares(shares, dataset())
    assert check_shares(shares, dataset(max_share_error=0.6)) is shares, "which is a remedy"


def test_windows_are_compared_since_documents_differ_in_length() -> None:
    packed = Dataset.model_validate({"path": "data", "features": {"text": {"encoder": "bytes", "length": 16}}})
    shares = compare_window_shares({"train": 900, "validation": 90, "test": 10}, 3_000, packed)
    assert shares.said.startswith("train has 90 %, asked 80 %, validation has 9 %, asked 10 %, test has 1 %, asked 10 %: documents differ")
    assert not compare_window_shares({"train": 802, "validation": 99, "test": 99}, 3_000, packed).said


def test_no_share_is_no_identity() -> None:
    from pipelines.config import parse

    config = {
        "name": "x",
        "source": {"tables": {"t": {"format": "parquet", "path": "t"}}},
        "dataset": dataset().model_dump(mode="json"),
        "task": {"kind": "tabular"},
    }
    strict, lenient = (parse({**config, "dataset": {**config["dataset"], "max_share_error": bound}}, "x") for bound in (0.1, 0.9))  # type: ignore[dict-item]
    assert strict.data_identity == lenient.data_identity and "max_share_error" not in strict.data_identity["dataset"]


@pytest.mark.parametrize(("share", "text"), [(0.36, "36 %"), (0.05, "5 %"), (0.0024, "0.24 %"), (1.0, "100 %"), (0.0, "0 %")])
def test_a_share_in_words(share: float, text: str) -> None:
    assert percent(share) == text
