"""A pipeline of values that depend on locale, time zone, encoding or Spark's settings wherever these are not fixed, and environments
that are hostile to it."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

ROOT = Path(__file__).parents[1]
NAMES = ("İstanbul", "IĞDIR", "ışık", "Straße", "ΑΣ", "plain title", "ǅ", "Δέλτα İ")
_QUERY = """SELECT t.id, lower(name) AS low, upper(name) AS high, initcap(name) AS title, CAST(moment AS string) AS moment,
    date_format(moment, 'EEEE d MMMM y hh:mm a') AS shown, CAST(date_trunc('DAY', moment) AS string) AS day, CAST(old AS string) AS old,
    format_number(x * 1000, 2) AS formatted, printf('%,.3f %S', x, name) AS printed, CAST(x AS string) AS text, x / 3 AS share,
    CAST(small * small AS string) AS square, CAST(from_unixtime(t.id) AS string) AS unix,
    datediff(to_date(born, 'dd.MM.yyyy'), DATE'1970-01-01') AS born, CAST(TIMESTAMP'2024-03-31 02:30:00' AS string) AS spring,
    element_at(array(1, 2), 1) AS first, `größe`, code, concat("double", name) AS literal, length(content) AS bytes, t.id % 2 = 0 AS even
FROM t JOIN b ON CAST(t.id % 3 AS string) = regexp_extract(b.path, '(\\\\d)-é.bin$', 1) JOIN p ON t.id = p.id"""
_TEXTS = (
    *("low", "high", "title", "moment", "shown", "day", "old", "formatted", "printed", "text", "square", "unix", "spring", "literal"),
    "code",
)


@dataclass(frozen=True)
class Environment:
    variables: dict[str, str | None] = field(default_factory=dict)
    """None removes a variable; values of JAVA_TOOL_OPTIONS are joined."""
    defaults: dict[str, str] = field(default_factory=dict)
    """Of spark-defaults.conf."""
    master: str = "local[2]"
    is_submitted: bool = False
    """By spark-submit, whose JVM starts first."""


def _java(options: str, **more: str | None) -> Environment:
    return Environment({"JAVA_TOOL_OPTIONS": options, **more})


_SETTINGS = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "Asia/Tokyo",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.legacy.timeParserPolicy": "LEGACY",
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    "spark.sql.legacy.castComplexTypesToString.enabled": "true",
    "spark.sql.icu.caseMappings.enabled": "false",
    "spark.sql.parquet.binaryAsString": "true",
    "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "true",
}
_MORE_SETTINGS = {
    "spark.sql.parser.quotedRegexColumnNames": "true",
    "spark.sql.legacy.sizeOfNull": "true",
    "spark.sql.execution.arrow.useLargeVarTypes": "true",
    "spark.sql.datetime.java8API.enabled": "true",
    "spark.sql.parquet.fieldId.read.enabled": "true",
    "spark.sql.csv.parser.columnPruning.enabled": "false",
    "spark.sql.legacy.charVarcharAsString": "true",
    "spark.sql.columnNameOfCorruptRecord": "name",
    "spark.sql.readSideCharPadding": "false",
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.CollapseProject",
}
ENVIRONMENTS = {
    "Turkish": _java("-Duser.language=tr -Duser.country=TR -Duser.language.format=tr -Duser.language.display=tr"),
    "other time zones": _java("-Duser.timezone=Asia/Kolkata", TZ="America/St_Johns"),
    "Latin-1": _java("-Dfile.encoding=ISO-8859-1 -Dstdout.encoding=ISO-8859-1"),
    "no locale": Environment({"LC_ALL": "C", "LANG": None, "LC_CTYPE": None, "LANGUAGE": "tr"}),
    "settings in spark-defaults": Environment(defaults=_SETTINGS),
    "more settings, and ANSI off by a variable": Environment({"SPARK_ANSI_SQL_MODE": "false"}, _MORE_SETTINGS),
    "hash seed and optimized Python": Environment({"PYTHONHASHSEED": "4711", "PYTHONOPTIMIZE": "1", "PYTHONUTF8": "1"}),
    "one core": Environment(
        defaults={
            "spark.sql.shuffle.partitions": "7",
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.files.maxPartitionBytes": "1000",
            "spark.sql.codegen.wholeStage": "false",
            "spark.default.parallelism": "3",
        },
        master="local[1]",
    ),
    "Lithuanian, by spark-submit": Environment(
        {"JAVA_TOOL_OPTIONS": "-Duser.language=lt -Duser.timezone=Pacific/Apia", "LC_ALL": "C.UTF-8", "SPARK_LOCAL_IP": "127.0.0.1"},
        is_submitted=True,
    ),
    "old names of months": _java("-Djava.locale.providers=COMPAT -Duser.language=de -Duser.country=CH -Duser.variant=POSIX"),
}


def together(*names: str) -> Environment:
    """All of these in one."""

    def join(first: Environment, second: Environment) -> Environment:
        both = (first.variables, second.variables)
        java = " ".join(str(variables["JAVA_TOOL_OPTIONS"]) for variables in both if "JAVA_TOOL_OPTIONS" in variables)
        variables = {**first.variables, **second.variables, **({"JAVA_TOOL_OPTIONS": java} if java else {})}
        master = first.master if first.master != Environment().master else second.master
        return Environment(variables, {**first.defaults, **second.defaults}, master, first.is_submitted or second.is_submitted)

    return reduce(join, (ENVIRONMENTS[name] for name in names))


def write_raw(folder: Path) -> None:
    """Tables of CSV, Parquet and whole files, in folders whose names are not ASCII."""
    raw = folder / "données"
    for name in ("csv", "bin", "parquet/code=01", "parquet/code=1"):
        (raw / name).mkdir(parents=True)
    lines = [
        f"{number},{NAMES[number % len(NAMES)]} {number % 5},2024-{number % 12 + 1:02}-28T0{number % 10}:30:00Z,{number / 7},"
        f"{number % 90 / 10:.1f},0{number % 9 + 1}.02.1980"
        for number in range(240)
    ]
    (raw / "csv/ö.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for number in range(3):
        (raw / f"bin/{number}-é.bin").write_bytes(b"x" * number + b"y")
    for code, half in (("01", range(120)), ("1", range(120, 240))):
        old = pa.array([-(10**15) * 20 - number for number in half], pa.timestamp("us"))
        table = pa.table({"id": pa.array(half, pa.int64()), "größe": [f"{number % 4}Ä" for number in half], "old": old})
        pq.write_table(table, raw / f"parquet/code={code}/é.parquet")


def write_pipeline(folder: Path, raw: Path, uri: str) -> Path:
    """The YAML file of the pipeline, whose version goes into `folder`."""
    features: dict[str, Any] = dict.fromkeys((*_TEXTS, "größe"), "vocabulary")
    features |= {"share": "standardize", "bytes": "standardize", "born": "standardize", "first": "identity"}
    tables = {
        "t": {
            "format": "csv",
            "path": str(raw / "données/csv"),
            "schema": "id bigint, name string, moment timestamp, x double, small decimal(20,1), born string",
        },
        "b": {"format": "binaryFile", "path": str(raw / "données/bin")},
        "p": {"format": "parquet", "path": str(raw / "données/parquet"), "options": {"datetimeRebaseMode": "LEGACY"}},
    }
    values = {
        "name": "surroundings",
        "source": {"tables": tables, "query": _QUERY},
        "dataset": {"path": str(folder / "data"), "key": ["id"], "features": features, "target": {"even": "binary"}},
        "task": {"kind": "tabular"},
        "tracking": {"uri": uri},
    }
    path = folder / "surroundings.yaml"
    path.write_text(yaml.safe_dump(values, allow_unicode=True), encoding="utf-8")
    return path


def run_etl(environment: Environment, folder: Path, raw: Path, uri: str, timeout_seconds: float = 280) -> dict[str, Any]:
    """The result of `jobs/etl.py` in that environment: version, digest and refused rows."""
    (folder / "conf").mkdir(parents=True)
    (folder / "conf/spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in environment.defaults.items()))
    pipeline = write_pipeline(folder, raw, uri)
    variables = {
        name: value for name, value in os.environ.items() if name == "SPARK_SUBMIT_OPTS" or not name.startswith(("SPARK_", "PYSPARK_"))
    }
    variables |= {
        "PYTHONPATH": str(ROOT),
        "SPARK_CONF_DIR": str(folder / "conf"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    submit = ["--master", environment.master, "--conf", "spark.ui.enabled=false", "--driver-memory", "1g"]
    if not environment.is_submitted:
        variables["PYSPARK_SUBMIT_ARGS"] = " ".join([*submit, "pyspark-shell"])
    for name, value in environment.variables.items():
        variables.pop(name, None)
        if value is not None:
            variables[name] = value
    start = ["spark-submit", *submit] if environment.is_submitted else [sys.executable]
    command = [*start, "jobs/etl.py", str(pipeline), "--json"]
    job = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, encoding="utf-8", timeout=timeout_seconds, check=False)
    assert job.returncode == 0, f"{job.stdout[-2000:]}\n{job.stderr[-3000:]}"
    events = [json.loads(line) for line in (job.stdout + job.stderr).splitlines() if line.startswith("{")]
    return next({key: line[key] for key in ("version", "digest", "quarantined", "rows")} for line in events if "digest" in line)
