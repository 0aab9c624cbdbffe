"""A model card in Markdown: what the statement and the manifest know, and headings for what only people know."""

from pipelines.data.versions.manifest import Manifest
from pipelines.lifecycle.statements.bill_of_materials import read_metrics
from pipelines.lifecycle.statements.dataset_record import DATASET, SOURCES
from pipelines.lifecycle.statements.materials import CODE, PACKAGES
from pipelines.lifecycle.statements.provenance import WEIGHTS, Statement

_TO_WRITE = "*To be written.*"
_QUESTIONS = {
    "Intended use": "Who is to use the model, for which decision, and with which people in between?",
    "Limits": "For which inputs was it not made, where does it fail, and what is its error there?",
    "People in the data": "Whom do the rows describe, with what consent, and who is missing?",
}


def model_card(statement: Statement, manifest: Manifest) -> str:
    """The card. Texts of the config and of the data are in code spans, in which Markdown has no meaning."""
    config, metadata = statement.config, statement.metadata
    task = config["task"]["kind"]
    lines = [
        f"# {_code(config['name'])}",
        "",
        f"A model of kind {_code(task)}, trained by strategy {_code(config['train']['strategy']['kind'])} from {metadata['startedOn']} to "
        f"{metadata['finishedOn']} in run {_code(metadata['invocationId'])}.",
        "",
        *(line for heading, question in _QUESTIONS.items() for line in (f"## {heading}", "", f"{question} {_TO_WRITE}", "")),
        *_data_lines(statement, manifest),
        *_metric_lines(statement),
        *_origin_lines(statement),
    ]
    return "\n".join(lines) + "\n"


def _data_lines(statement: Statement, manifest: Manifest) -> list[str]:
    sources = [
        f"- {_code(name.removeprefix(SOURCES))}: {descriptor['annotations']['files']:,} files, {descriptor['annotations']['bytes']:,} bytes"
        for name, descriptor in statement.dependencies.items()
        if name.startswith(SOURCES)
    ]
    splits = [f"| {split} | {summary.rows:,} |" for split, summary in manifest.splits.items()]
    columns = [
        f"| {_code(name)} | {fitted.column.role} | {_code(str(fitted.feature.get('encoder', '')))} |"
        for name, fitted in manifest.encoders.items()
    ]
    refused = [f"- {rows:,} rows: {_code(reason)}" for reason, rows in manifest.quarantined.items()]
    return [
        "## Data",
        "",
        f"Version {_code(manifest.version)}, digest {_code(manifest.digest)}, made {manifest.created:%Y-%m-%d} from",
        "",
        *(sources or ["- no raw tables"]),
        "",
        "| split | rows |",
        "|---|--:|",
        *splits,
        "",
        "| column | role | encoder |",
        "|---|---|---|",
        *columns,
        "",
        *(["Refused rows:", "", *refused, ""] if refused else []),
    ]


def _metric_lines(statement: Statement) -> list[str]:
    metrics = [f"| {_code(name)} | {value:.6g} |" for name, value in sorted(read_metrics(statement).items())]
    return ["## Metrics", "", "Of the best epoch by the validation split.", "", "| metric | value |", "|---|--:|", *metrics, ""]


def _origin_lines(statement: Statement) -> list[str]:
    dependencies, packages = statement.dependencies, [name for name in statement.dependencies if name.startswith(PACKAGES)]
    code = dependencies.get(CODE, {"digest": {}})
    commit = code["digest"].get("gitCommit", "")
    dirty = " with changes" if code.get("annotations", {}).get("dirty") else ""
    return [
        "## Origin",
        "",
        f"- weights: {_code(statement.subjects[WEIGHTS])}",
        f"- dataset: {_code(dependencies[DATASET]['digest']['sha256'])}",
        f"- code: {_code(commit) + dirty if commit else _code(code['digest'].get('sha256', 'unknown'))}",
        f"- packages: {len(packages)}, in the statement",
    ]


def _code(text: str) -> str:
    """A code span of one line, between more backticks than it has; a bar would end the cell of a table."""
    line = " ".join(text.split()).replace("|", "\\|")
    ticks = "`" * (1 + line.count("`"))
    space = " " if "`" in line else ""
    return f"{ticks}{space}{line}{space}{ticks}"
