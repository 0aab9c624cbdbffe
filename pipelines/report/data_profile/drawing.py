"""Draws the page about the data from its description."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from pipelines.report.data_profile import findings
from pipelines.report.data_profile.histograms import histogram, legend
from pipelines.report.figures.curves import wilson
from pipelines.report.page import Html, contents, element, facts, figure, folded, grid, join, note, page, section, table, tiles

MOST_FINDINGS = 50
"""Warnings on the page: of a table with thousands of columns, thousands may drift."""
_KINDS = {
    "shares": "Shares of the splits",
    "leak": "Leak",
    "constant": "Constant",
    "drift": "Drift",
    "shared": "Shared rows",
    "skew": "Skew",
}
_TESTS = (
    f"Leak: one column alone explains at least {findings.LEAK:.0%} of the target in half of the training sample, from bins or categories "
    "fitted on the other half. Constant: one value, or none, in the training split. Drift: population stability index above "
    f"{findings.PSI} and above what chance gives once in {1 / findings.CHANCE:,.0f} columns of samples of this size; values of columns "
    "with few of them are counted in all rows. Shared rows: more of a split's rows have the features of a training row than chance would "
    f"give if columns were independent of each other, by at least {findings.SHARED:.0%} of the others and by "
    f"{findings.SHARED_ERRORS:g} standard errors. Skew: the longest task takes at least {findings.SKEW:g} times the median and "
    f"{findings.SKEW_SECONDS:g} s, and the stage reads {findings.SKEW_ROWS:,} rows or more."
)


def draw(described: Mapping[str, Any]) -> str:
    """One HTML file. `described` is what `describe` returns."""
    sections = dict(_sections(described))
    rows, refused = described["rows"], sum(reason["rows"] for reason in described["refused"])
    head = tiles(
        [
            *((f"{split} rows", count) for split, count in rows.items()),
            ("refused", refused),
            ("raw columns", described["raw_columns"]),
            ("seconds", round(sum(described["seconds"].values()), 1)),
        ]
    )
    lead = f"Version {described['version']} in {described['path']}, digest {described['digest'][:12]}, made {described['created'][:19]}"
    body = [contents(sections), *_warned(described), head, *(section(title, [part]) for title, part in sections.items())]
    return page(f"{described['pipeline']}: the data", body, lead)


def _warned(described: Mapping[str, Any]) -> Iterator[Html]:
    """What looks wrong, or that nothing does."""
    found = described["findings"]
    for finding in found[:MOST_FINDINGS]:
        yield note(element("b", f"{_KINDS[finding['kind']]}. "), finding["text"], kind="warning")
    if len(found) > MOST_FINDINGS:
        yield note(f"{len(found) - MOST_FINDINGS:,} more are in data.json.", kind="warning")
    for warning in described["warnings"]:
        yield note(element("b", "May differ next time. "), warning, kind="warning")
    if not found:
        yield note("No odd share of a split, leak, constant column, drift between splits, shared rows or skew was found.", kind="good")
    yield folded("What is tested, and the thresholds", element("p", _TESTS, kind="small"))


def _sections(described: Mapping[str, Any]) -> Iterator[tuple[str, Html]]:
    yield "Rows", _rows(described)
    yield "Columns", _columns(described)
    if described["refused"]:
        rows = [[reason["rows"], reason["reason"], element("code", reason["record"])] for reason in described["refused"]]
        yield "Refused rows", table(["rows", "reason", "such as"], rows)
    yield "Sources", _sources(described)
    yield "Query", _query(described)
    yield "Time", _time(described)
    yield "Made with", facts([*described["versions"].items(), ("MLflow run", described["run_id"] or None)])


def _rows(described: Mapping[str, Any]) -> Html:
    """Rows by split, and where the others went; each line's numbers have been checked against each other by the commit."""
    total = max(sum(described["rows"].values()), 1)
    asked = described.get("shares", {}).get("asked", {}) if described["split"].get("train") is not None else {}
    splits = [
        [split, rows, f"{rows / total:.1%}", *([f"{asked[split]:.1%}"] if asked else []), described["bytes"][split]]
        for split, rows in described["rows"].items()
    ]
    parts: list[Html] = [table(["split", "rows", "share", *(["asked"] if asked else []), "bytes"], splits)]
    if balance := described["balance"]:
        stages: list[list[Any]] = [
            [f"table {name}", found["parsed"], found["handed_on"], found["refused"]] for name, found in balance["tables"].items()
        ]
        stages.append(["query and encoders", balance["query"], balance["taken"], balance["refused"]])
        parts = [grid([*parts, table(["stage", "came", "went on", "refused"], stages)])]
        if balance["made"] != balance["taken"]:
            parts.append(element("p", f"{balance['taken']:,} documents make {balance['made']:,} windows."))
    key = ", ".join(described["key"])
    if key:
        parts.append(element("p", f"A row is identified by {key}; one of the rows with the same key was kept.", kind="small"))
    return join(parts)


def _columns(described: Mapping[str, Any]) -> Html:
    sampled = ", ".join(f"{rows:,} of {split}" for split, rows in described["sampled"].items())
    lead = (
        "Values of columns with few of them are counted in all rows. A chart that is marked so, and shares with an interval, are of a "
        f"random sample ({sampled or 'no'} rows); intervals hold the share of all rows with 95 % confidence. Means, deviations, minima, "
        "maxima and distinct values are of the whole training split."
    )
    if (shown := len(described["columns"])) < described["raw_columns"]:
        lead = f"The first {shown:,} of {described['raw_columns']:,} columns. {lead}"
    cards = [_card(column) for column in described["columns"]]
    return join([element("p", legend(list(described["sampled"]))), element("p", lead, kind="small"), grid(cards)])


def _card(column: Mapping[str, Any]) -> Html:
    known = column["train"]
    shown = {} if column["type"] == "bool" else _NUMBERS
    numbers = [f"{label} {_number(known[name])}" for label, name in shown.items() if known.get(name) is not None]
    if "distinct" in known:
        numbers.append(f"{known['distinct']:,} distinct {column['distinct_of']}")
    missing = [_missing(split, one) for split, one in column["missing"].items() if one["share"]]
    numbers.append(f"missing: {', '.join(missing)}" if missing else "none missing")
    lines = [element("b", encoder["name"]) + Html(": ") + element("span", encoder["words"]) for encoder in column["encoders"]]
    chart = column["chart"]
    caption = join(
        [
            *map(partial(element, "div"), [*_shares(column), *_about(chart), "; ".join(numbers)]),
            *(element("div", Html(line)) for line in lines),
        ]
    )
    head = element("h3", column["name"], Html(" "), element("span", f"{', '.join(column['roles'])}, {column['type']}", kind="small"))
    return element("div", head, figure(histogram(chart, column["name"]) if chart else Html(""), caption))


def _missing(split: str, one: Mapping[str, Any]) -> str:
    low, high = one.get("interval", (None, None))
    return f"{one['share']:.1%} of {split}" + (f" ({low:.1%} to {high:.1%})" if low is not None else "")


def _about(chart: Mapping[str, Any] | None) -> Iterator[str]:
    """What a chart is of, and what lies beyond its ends."""
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


def _shares(column: Mapping[str, Any]) -> Iterator[str]:
    """Of a target with few values, the share of each in all splits."""
    chart = column["chart"]
    if chart is None or chart["kind"] != "names" or "target" not in column["roles"]:
        return
    for place, name in enumerate(chart["names"]):
        yield f"{name}: {', '.join(f'{shares[place]:.2%} of {split}' for split, shares in chart['shares'].items())}"


_NUMBERS = {"mean": "mean", "±": "deviation", "from": "minimum", "to": "maximum"}


def _number(value: float) -> str:
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:,.4g}"


def _sources(described: Mapping[str, Any]) -> Html:
    parts = []
    for source in described["sources"]:
        files = [[file["path"], file["bytes"], element("code", file["checksum"])] for file in source["listed"]]
        size = f"{source['table']}: {source['files']:,} file{'s' * (source['files'] != 1)}, {source['bytes']:,} bytes"
        more = f", the first {len(files)} of them" if len(files) < source["files"] else ""
        listed = table(["file", "bytes", "checksum"], files)
        parts.append(folded(size + more, listed) if len(files) > 10 else element("div", element("p", size), listed))
    return join(parts) if parts else element("p", "The query reads no table.")


def _query(described: Mapping[str, Any]) -> Html:
    expected = [[name, element("code", condition)] for name, condition in described["expect"].items()]
    parts = [element("pre", described["query"].strip())]
    if expected:
        parts.append(table(["expectation", "condition"], expected))
    parts.append(facts([("split", ", ".join(f"{name} {value}" for name, value in described["split"].items() if value not in ("", None)))]))
    return join(parts)


def _time(described: Mapping[str, Any]) -> Html:
    whole = max(sum(described["seconds"].values()), 1e-9)
    stages = [[name, seconds, _bar(seconds / whole)] for name, seconds in described["seconds"].items()]
    header = ["of", "Spark's stage", "tasks", "s", "median task, s", "longest, s", "skew", "rows read", "spilled, bytes", "shuffled, bytes"]
    names = (
        "stage",
        "what",
        "tasks",
        "seconds",
        "median_seconds",
        "longest_seconds",
        "skew",
        "rows_read",
        "spilled_bytes",
        "shuffled_bytes",
    )
    spark = [[stage[name] for name in names] for stage in described["spark"]]
    parts = [table(["stage", "seconds", ""], stages), folded(f"{len(spark)} stages of Spark", table(header, spark))]
    if described["event_log"]:
        parts.append(element("p", "Spark's event log, for its history server: ", element("code", described["event_log"])))
    return join(parts)


def _bar(share: float) -> Html:
    return Html(
        f'<svg viewBox="0 0 200 10" width="200" height="10" role="img" aria-label="{share:.0%}">'
        f'<rect width="{200 * share:.1f}" height="10" fill="#56b4e9"/></svg>'
    )
