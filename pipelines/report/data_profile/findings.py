"""Tests that say what looks wrong with the data, such as a column that explains the target. Each is a function of plain values, with its
threshold beside it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.special import chdtri

from pipelines.data.versions.data_profile import TEXT_LENGTH, SparkStage, ValueCounts
from pipelines.data.versions.manifest import SPLITS
from pipelines.report.data_profile.coding import (
    MISSING,
    as_numbers,
    as_texts,
    count_codes,
    count_distinct,
    encode_columns,
    is_free_text,
    is_numeric,
)

_FIT, _TEST = slice(0, None, 2), slice(1, None, 2)
"""The sampled rows that a prediction is fitted on, and those that it is tried on."""
_LEAST_ERRORS = 5
"""Errors of the most frequent class below which no share of them is measured."""
LEAK = 0.95
"""Share of the target's errors or variance that one column alone may explain."""
LEAK_ROWS = 100
"""Rows of the sample below which a leak is not looked for."""
PSI = 0.1
"""Population stability index from which a split is said to differ, as is usual; 0.25 is said to differ much."""
CHANCE = 1e-4
"""Probability of a higher index by chance, over all columns of a split, above which nothing is said."""
SHARED, SHARED_ROWS = 0.01, 5
"""Share and number of a split's sampled rows that have the features of a row of the training split: the share of those rows for which
chance does not account."""
SHARED_ERRORS, CHANCE_ROWS = 4.0, 2_000
"""Standard errors by which the share must exceed that of chance, which is estimated from so many rows at most."""
SKEW, SKEW_SECONDS, SKEW_ROWS = 4.0, 10.0, 1_000
"""The longest task over the median, for stages whose longest task takes at least so many seconds, and which read at least so many rows:
where there are hardly any, the longest task is the one that started Python's workers."""


def explainer(target: pa.ChunkedArray) -> Callable[[pa.ChunkedArray], float]:
    """A function that gives the share of a target that one column explains, on rows that the prediction was not fitted on: 1 for all, 0
    for nothing. The target's codes or ranks are computed once.

    For numbers with more than 20 values it is the variance of their ranks, with the mean rank of each bin or category of the column as
    prediction; for classes, the share of the errors of the most frequent class that the most frequent class of each bin corrects.
    """
    rows = np.arange(len(target))
    if is_numeric(target) and count_distinct(target) > 20:
        values = as_numbers(target)
        is_finite = np.isfinite(values)
        ranks = values[is_finite].argsort().argsort().astype(float)
        return lambda column: _share_of_ranks(_codes(column, rows)[is_finite], ranks)
    (classes,) = encode_columns(target, [target], bins=10**9, most=10**9)
    return lambda column: _share_of_classes(_codes(column, rows), classes - MISSING)


def _codes(column: pa.ChunkedArray, rows: np.ndarray) -> np.ndarray:
    (codes,) = encode_columns(column.take(rows[_FIT]), [column], bins=100, most=1_000)
    return codes


def _share_of_ranks(codes: np.ndarray, ranks: np.ndarray) -> float:
    fitted_codes, places = np.unique(codes[_FIT], return_inverse=True)
    means = dict(zip(fitted_codes.tolist(), (np.bincount(places, ranks[_FIT]) / np.bincount(places)).tolist(), strict=True))
    errors = ranks[_TEST] - np.array([means.get(code, ranks[_FIT].mean()) for code in codes[_TEST]])
    spread = ((ranks[_TEST] - ranks[_FIT].mean()) ** 2).sum()
    return float(1 - (errors**2).sum() / spread) if spread else 0.0


def _share_of_classes(codes: np.ndarray, classes: np.ndarray) -> float:
    most = np.bincount(classes[_FIT]).argmax()
    distinct_codes, places = np.unique(codes, return_inverse=True)
    pairs, rows = np.unique(places[_FIT] * (classes.max() + 1) + classes[_FIT], return_counts=True)
    bins, bin_classes = np.divmod(pairs, classes.max() + 1)
    order = np.lexsort((-bin_classes, rows, bins))  # the last of each bin is its most frequent class, of equal ones the first
    likeliest = np.full(len(distinct_codes), most)
    likeliest[bins[order]] = bin_classes[order]
    wrong = (classes[_TEST] != likeliest[places[_TEST]]).sum()
    base = (classes[_TEST] != most).sum()
    return float(1 - wrong / base) if base >= _LEAST_ERRORS else 0.0


@dataclass(frozen=True)
class Finding:
    kind: str
    """`shares`, `leak`, `constant`, `drift`, `shared` or `skew`."""
    text: str
    columns: tuple[str, ...] = ()


def leaks(sample: pa.Table, features: Iterable[str], target: str) -> Iterator[Finding]:
    """Columns that equal the target, or determine it nearly, in a sample of the training split."""
    names = set(sample.column_names)
    if target not in names or len(sample) < LEAK_ROWS or count_distinct(sample[target]) < 2:
        return
    share_explained_by, texts = explainer(sample[target]), as_texts(sample[target])
    for name in features:
        if name == target:
            yield Finding("leak", f"{name} is a feature and the target", (name,))
        elif name in names:
            if as_texts(sample[name].slice(0, 8)) == texts[:8] and as_texts(sample[name]) == texts:  # the first ones usually tell
                yield Finding("leak", f"{name} equals the target {target} in all {len(sample):,} sampled rows", (name,))
            elif (share := share_explained_by(sample[name])) >= LEAK:
                yield Finding(
                    "leak",
                    f"{name} alone tells {share:.1%} of the target {target}, in {len(sample):,} sampled rows: would it be known before the "
                    "target is?",
                    (name,),
                )


def constants(profile: Mapping[str, Mapping[str, Any]], sample: pa.Table, columns: Iterable[str]) -> Iterator[Finding]:
    """Columns with one value in the training split, or with none."""
    sampled_columns = set(sample.column_names)
    for name in columns:
        statistics = profile.get(name, {})
        rows, nulls = statistics.get("rows", 0), statistics.get("nulls", 0)
        if rows and nulls == rows:
            yield Finding("constant", f"{name} is missing in all {rows:,} rows of train", (name,))
        elif rows and not nulls:
            has_equal_ends = "minimum" in statistics and statistics["minimum"] == statistics["maximum"]
            values = statistics.get("distinct") or (1 if has_equal_ends else None)
            is_in_sample_alone = name in sampled_columns and not statistics.keys() & {"distinct", "minimum"}
            if values == 1:
                yield Finding("constant", f"{name} has the same value in all {rows:,} rows of train", (name,))
            elif is_in_sample_alone and len(sample) >= LEAK_ROWS and _is_constant(sample[name]):
                yield Finding("constant", f"{name} has the same value in all {len(sample):,} sampled rows of train", (name,))


def _is_constant(values: pa.ChunkedArray) -> bool:
    if values.null_count or pa.types.is_boolean(values.type) or count_distinct(values) != 1:
        return False
    first = values[0].as_py()
    return not (isinstance(first, str) and len(first) >= TEXT_LENGTH)  # long texts with one beginning may differ behind it


def drifts(samples: Mapping[str, pa.Table], columns: Iterable[str], counts: Mapping[str, ValueCounts] | None = None) -> Iterator[Finding]:
    """Columns with another distribution in validation or test than in train, the most different first. `counts` are the values of all
    rows, which are compared instead of samples where there are any."""
    counts = counts or {}
    if "train" not in samples:
        return
    sampled_columns = set(samples["train"].column_names)
    names = [name for name in columns if name in sampled_columns]
    # The limit for many columns over that for one, roughly: a quantile of χ² grows with the logarithm of 1/chance.
    limit_factor = 1 + 0.1 * float(np.log10(max(len(names), 1)))
    for split, rows in samples.items():
        if split == "train":
            continue
        place = SPLITS.index(split)
        stabilities = [
            (stability_from_counts(counts[name], place) if name in counts else stability(samples["train"][name], rows[name]), name)
            for name in names
        ]
        drifting = [(index, name) for (index, limit), name in stabilities if index > max(PSI, limit * limit_factor)]
        for index, name in sorted(drifting, reverse=True):
            distribution = f"a {'very ' if index > 0.25 else ''}different distribution"
            values = f"the length of {name}" if name not in counts and is_free_text(samples["train"][name]) else name
            base = "all rows" if name in counts else f"{len(rows):,} and {len(samples['train']):,} sampled rows"
            text = f"{values} has {distribution} in {split} than in train (population stability index {index:.2f}, of {base})"
            yield Finding("drift", text, (name,))


def stability(fitted: pa.ChunkedArray, other: pa.ChunkedArray) -> tuple[float, float]:
    """The population stability index Σ (p − q) ln(p / q) of two columns, and the index that only CHANCE exceeds if both come from one
    distribution.

    Over deciles of the first column, or its 20 most frequent categories and all others; NULL is one more. Half a row is added to every
    count. Without drift, the index over (1/n + 1/m) is nearly χ² with one degree less than there are bins (Yurdakul and Naranjo 2020).
    """
    first, second = encode_columns(fitted, [fitted, other], bins=10, most=20)
    size = int(max(first.max(initial=0), second.max(initial=0))) + 1
    return _index(count_codes(first, size), count_codes(second, size))


def stability_from_counts(counts: ValueCounts, split: int) -> tuple[float, float]:
    """`stability` of train and another split, from all their rows: the 20 most frequent values of train, all others, and NULL."""
    rows = np.concatenate([counts.rows[:20], counts.rows[20:].sum(0, keepdims=True), counts.missing[None]])
    return _index(rows[:, SPLITS.index("train")], rows[:, split])


def _index(train: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    has_rows = (train + other) > 0
    train, other = train[has_rows], other[has_rows]
    p, q = ((counts + 0.5) / (counts.sum() + 0.5 * len(counts)) for counts in (train, other))
    index = float(((p - q) * np.log(p / q)).sum())
    return index, float(chdtri(max(len(train) - 1, 1), CHANCE)) * (1 / max(train.sum(), 1) + 1 / max(other.sum(), 1))


def overlaps(contents: np.ndarray, chance_share: Callable[[str], float] = lambda split: 0.0) -> Iterator[Finding]:
    """Splits with more rows whose features are those of a row of train than chance gives. `contents` are rows by split, shape
    (contents, splits); `chance_share` gives the share of a split's rows that chance alone would give."""
    train = contents[:, SPLITS.index("train")] > 0
    for split in ("validation", "test"):
        rows = contents[:, SPLITS.index(split)]
        both, all_rows = int(rows[train].sum()), int(rows.sum())
        if not all_rows or both < SHARED_ROWS or both < SHARED * all_rows:
            continue
        share, chance = both / all_rows, chance_share(split)
        error = (chance * (1 - chance) * (1 / all_rows + 1 / CHANCE_ROWS)) ** 0.5
        if share - chance >= max(SHARED * (1 - chance), SHARED_ERRORS * error, SHARED / 10):  # the last, since chance may be 99.999 %
            comparison = f", where chance would give about {chance:.1%} for columns with so few values" if chance >= 0.0005 else ""
            yield Finding(
                "shared",
                f"about {share:.1%} of {split}'s rows have the same features as a row of train{comparison}, after texts are put in lower "
                f"case and reduced to words, and numbers rounded to float32 ({both:,} of {all_rows:,} sampled rows)",
            )


def skews(stages: Iterable[SparkStage]) -> Iterator[Finding]:
    """Stages of Spark that wait for one task."""
    for stage in stages:
        long = stage.skew >= SKEW and stage.longest_seconds >= SKEW_SECONDS
        if stage.tasks > 1 and long and stage.rows_read >= SKEW_ROWS:
            yield Finding(
                "skew",
                f"{stage.stage}: the longest of {stage.tasks} tasks took {stage.longest_seconds:.1f} s, the median "
                f"{stage.median_seconds:.1f} s (Spark's stage {stage.number}, {stage.call}): its partition has more rows, or its "
                "machine is slow",
            )
