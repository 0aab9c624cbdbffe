"""The page about the data, from the description in `data.json`."""

from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipelines.report.data_profile import findings
from pipelines.report.figures.class_curves import wilson
from pipelines.report.rendering import Code, Facts, PageTable, Picture, Share, render

MOST_FINDINGS = 50
"""Warnings on the page: of a table with thousands of columns, thousands may drift."""
_FINDING_TITLES = {
    "shares": "Shares of the splits",
    "leak": "Leak",
    "constant": "Constant",
    "drift": "Drift",
    "shared": "Shared rows",
    "skew": "Skew",
}
_STATISTICS = {"mean": "mean", "±": "deviation", "from": "minimum", "to": "maximum"}
_STAGE_COLUMNS = (
    *("stage", "what", "tasks", "seconds", "median_seconds", "longest_seconds", "skew", "rows_read", "spilled_bytes", "shuffled_bytes"),
)

Description = Mapping[str, Any]
"""A survey as `describe_data` returns it."""


def data_page(description: Description) -> str:
    version, path, digest, created = (description[name] for name in ("version", "path", "digest", "created"))
    total_seconds = sum(description["seconds"].values())
    samples = description["samples"]
    return render(
        "data.html",
        title=f"{description['pipeline']}: the data",
        lead=f"Version {version} in {path}, digest {digest[:12]}, made {created[:19]}",
        findings=description["findings"],
        most_findings=MOST_FINDINGS,
        finding_titles=_FINDING_TITLES,
        thresholds=findings,
        warnings=description["warnings"],
        headline=_headline(description, total_seconds),
        splits=_splits(description),
        balance=description["balance"],
        stages=_stage_balance(description["balance"]),
        key=description["key"],
        sampled=description["sampled"],
        columns=[{**column, "lines": list(_column_lines(column))} for column in description["columns"]],
        raw_columns=description["raw_columns"],
        samples=samples,
        sample_pictures=_sample_pictures(samples["pictures"]),
        refused=[
            [reason["rows"], reason["reason"], Code(reason["record"]), _picture(reason.get("picture"), reason["reason"])]
            for reason in description["refused"]
        ],
        sources=[_source(source) for source in description["sources"]],
        query=description["query"],
        expectations=[[name, Code(condition)] for name, condition in description["expect"].items()],
        split_settings=", ".join(f"{name} {value}" for name, value in description["split"].items() if value not in ("", None)),
        stage_seconds=[[name, seconds, Share(seconds / max(total_seconds, 1e-9))] for name, seconds in description["seconds"].items()],
        spark_stages=[[stage[name] for name in _STAGE_COLUMNS] for stage in description["spark"]],
        event_log=description["event_log"],
        versions=[*description["versions"].items(), ("MLflow run", description["run_id"] or None)],
    )


def _sample_pictures(samples: Sequence[Mapping[str, str]]) -> PageTable | None:
    """A row of pictures for each column that holds some, under their targets."""
    if not samples:
        return None
    names = dict.fromkeys(sample["column"] for sample in samples)
    captions = [sample["caption"] for sample in samples if sample["column"] == next(iter(names))]
    rows = [[name, *(_picture(sample["content"], sample["caption"]) for sample in samples if sample["column"] == name)] for name in names]
    return PageTable(["", *captions], rows)


def _picture(content: str | None, alternative: str) -> Picture | str:
    return Picture(b64decode(content), alternative) if content else ""


def _headline(description: Description, total_seconds: float) -> Facts:
    return [
        *((f"{split} rows", rows) for split, rows in description["rows"].items()),
        ("refused", sum(reason["rows"] for reason in description["refused"])),
        ("raw columns", description["raw_columns"]),
        ("seconds", round(total_seconds, 1)),
    ]


def _splits(description: Description) -> PageTable:
    rows_by_split = description["rows"]
    total_rows = max(sum(rows_by_split.values()), 1)
    target_shares = description.get("shares", {}).get("asked", {}) if description["split"].get("train") is not None else {}
    cells = [
        [split, rows, f"{rows / total_rows:.1%}", *([f"{target_shares[split]:.1%}"] if target_shares else []), description["bytes"][split]]
        for split, rows in rows_by_split.items()
    ]
    return PageTable(["split", "rows", "share", *(["asked"] if target_shares else []), "bytes"], cells)


def _stage_balance(balance: Mapping[str, Any] | None) -> list[list[Any]]:
    """Where the rows of each table went; the commit has checked that each line adds up."""
    if not balance:
        return []
    tables = [[f"table {name}", rows["parsed"], rows["handed_on"], rows["refused"]] for name, rows in balance["tables"].items()]
    return [*tables, ["query and encoders", balance["query"], balance["taken"], balance["refused"]]]


def _column_lines(column: Mapping[str, Any]) -> Iterator[str]:
    """Of a target with few values the share of each in all splits, remarks on the chart, and the column's statistics."""
    chart, train = column["chart"], column["train"]
    if chart is not None and chart["kind"] == "names" and "target" in column["roles"]:
        for place, name in enumerate(chart["names"]):
            yield f"{name}: {', '.join(f'{shares[place]:.2%} of {split}' for split, shares in chart['shares'].items())}"
    yield from _chart_remarks(chart)
    statistics = []
    for label, name in _STATISTICS.items():
        value = train.get(name)
        if value is not None and column["type"] != "bool":
            statistics.append(f"{label} {value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{label} {value:,.4g}")
    if "distinct" in train:
        statistics.append(f"{train['distinct']:,} distinct {column['distinct_of']}")
    missing = []
    for split, values in column["missing"].items():
        if values["share"]:
            interval = f" ({' to '.join(f'{end:.1%}' for end in values['interval'])})" if "interval" in values else ""
            missing.append(f"{values['share']:.1%} of {split}{interval}")
    statistics.append(f"missing: {', '.join(missing)}" if missing else "none missing")
    yield "; ".join(statistics)


def _chart_remarks(chart: Mapping[str, Any] | None) -> Iterator[str]:
    """Remarks on the sample of a chart, and on values beyond its ends."""
    if chart is None:
        return
    if rows := [count for count in chart["sampled"].values() if count]:
        low, high = wilson(min(rows) / 2, min(rows))
        yield f"chart of a sample: each share is right within {100 * (high - low) / 2:.1f} percentage points at most"
    beyond = []
    for split, (below, above) in chart.get("beyond", {}).items():
        sides = [f"{share:.1%} {side}" for share, side in ((below, "below"), (above, "above")) if share]
        beyond += [f"of {split} {' and '.join(sides)}"] if sides else []
    if beyond:
        yield f"in the outer bars is what lies beyond the ends of the axis: {', '.join(beyond)}"


def _source(source: Mapping[str, Any]) -> dict[str, Any]:
    files = [[file["path"], file["bytes"], Code(file["checksum"])] for file in source["listed"]]
    title = f"{source['table']}: {source['files']:,} file{'s' * (source['files'] != 1)}, {source['bytes']:,} bytes"
    return {"title": title + (f", the first {len(files)} of them" if len(files) < source["files"] else ""), "files": files}
