"""What Prometheus and Grafana are given: rules, the dashboard, and the files that ETLs leave."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import monitoring
import numpy as np
import pytest
from places import MONITORING_PORTS, PORTS, Places
from prometheus_client import CollectorRegistry, generate_latest
from textfiles import TextFiles

from pipelines.config import parse
from pipelines.data.versions.data_profile import SparkStage, Survey
from pipelines.data.versions.manifest import Manifest, SplitSummary
from pipelines.launch.reports import GAUGES, STEP, STEPS
from pipelines.report.data_profile.textfile import metrics_text, write_metrics

ROOT = Path(__file__).parents[2] / "cluster/monitoring"


def survey(name: str) -> Survey:
    values = {"dataset": {"path": "-", "features": {"x": "identity"}, "target": {"y": "binary"}}, "task": {"kind": "tabular"}}
    config = parse({"name": "t", "source": {"query": "-"}, **values}, "t")
    split = SplitSummary(rows=70, parts=1, row_groups=1, bytes=9, decoded_bytes=9)
    counted = {"rows_parsed": 100, "quarantined": {'too "old"\n': 3}, "splits": {"train": split}}
    manifest = Manifest(name=name, version="0" * 12, digest="", attempt="", encoders={}, **counted)
    stages = (SparkStage("fit", 1, "", 4, 9.0, 9.0, 2.0, 5.0, 10, 7, 0), SparkStage("fit", 2, "", 4, 9.0, 9.0, 2.0, 2.0, 10, 1, 0))
    return Survey(config, manifest, {}, {}, np.empty((0, 3), np.int64), {}, {"fit": 2.5}, stages)


def promtool(*arguments: str | Path, stdin: str | None = None) -> str:
    if not shutil.which("promtool"):
        pytest.skip("no promtool is here; Debian, Ubuntu: sudo apt-get install prometheus")
    process = subprocess.run(["promtool", *arguments], input=stdin, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def names() -> set[str]:
    """Those that training and ETL give."""
    of_training = {f"ray_{name}" for name in [STEP, STEPS, *(name for name, _ in GAUGES.values())]}
    return of_training | set(re.findall(r"^(lockstep_\w+)\{", metrics_text(survey("t")).decode(), re.MULTILINE))


def test_the_rules_are_prometheus_s_and_read_metrics_that_are_given() -> None:
    rules = (ROOT / "alerts.yml").read_text()
    used = set(re.findall(r"(?:ray_)?lockstep_\w+", rules))
    assert used and used <= names()
    assert "4 rules found" in promtool("check", "rules", ROOT / "alerts.yml")


def test_the_rules_fire_on_what_they_are_for_and_on_nothing_else(tmp_path: Path) -> None:
    run = 'pipeline="p", run="r"'
    series = {
        f"ray_lockstep_train_step{{{run}}}": "1+1x10 11x30",
        'ray_lockstep_train_step{pipeline="well", run="w"}': "1+1x40",
        f"ray_lockstep_train_data_wait_fraction{{{run}}}": "0.6x40",
        'ray_lockstep_train_data_wait_fraction{pipeline="well", run="w"}': "0.1x40",
        'lockstep_etl_rows_parsed{pipeline="p"}': "1000x1500",
        'lockstep_etl_rows_quarantined{pipeline="p"}': "1x1439 40x60",
        'lockstep_etl_rows_parsed{pipeline="well"}': "1000x1500",
        'lockstep_etl_rows_quarantined{pipeline="well"}': "9x1500",
    }

    def alert_test(alert: str, at: str, labels: dict[str, str] | None, value: str = "") -> dict[str, object]:
        texts = {"summary": value} if value else {}
        return {"eval_time": at, "alertname": alert, "exp_alerts": [{"exp_labels": labels, "exp_annotations": texts}] if labels else []}

    expected = [
        alert_test("TrainingStuck", "9m", None),
        alert_test("TrainingWaitsForData", "2m", None),
        alert_test("QuarantineGrows", "20h", None),
    ]
    tests = {"rule_files": [str(ROOT / "alerts.yml")], "evaluation_interval": "1m"}
    counted = [
        {
            "expr": f'count(ALERTS{{alertname="{alert}", alertstate="firing"}})',
            "eval_time": at,
            "exp_samples": [{"labels": "{}", "value": 1}],
        }
        for alert, at in (("TrainingStuck", "30m"), ("TrainingWaitsForData", "30m"), ("QuarantineGrows", "1445m"))
    ]
    described = [{"series": name, "values": values} for name, values in series.items()]
    tests["tests"] = [{"interval": "1m", "input_series": described, "alert_rule_test": expected, "promql_expr_test": counted}]
    (tmp_path / "tests.yml").write_text(json.dumps(tests))
    promtool("test", "rules", tmp_path / "tests.yml")


def test_the_dashboard_shows_metrics_that_are_given() -> None:
    dashboard = json.loads((ROOT / "grafana/dashboards/lockstep.json").read_text())
    expressions = " ".join(target["expr"] for panel in dashboard["panels"] for target in panel["targets"])
    assert set(re.findall(r"(?:ray_)?lockstep_\w+", expressions)) == names() - {"lockstep_etl_finished_timestamp_seconds"}
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]]
    assert len(set(places)) == len({panel["id"] for panel in dashboard["panels"]}) == len(places)


def test_files_of_several_etls_are_one_text_that_prometheus_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_METRICS", str(tmp_path / "metrics"))
    for name in ("one", 'of\n"us"\\', "one"):
        write_metrics(survey(name))
    (tmp_path / "metrics/other.new").write_text("half a li")
    registry = CollectorRegistry()
    registry.register(TextFiles(tmp_path / "metrics"))
    text = generate_latest(registry).decode()
    assert len(list((tmp_path / "metrics").glob("*.prom"))) == 2
    assert 'lockstep_etl_rows_quarantined{pipeline="one"} 3.0\n' in text
    assert 'lockstep_etl_skew{pipeline="one",stage="fit"} 2.5\n' in text and 'spilled_bytes{pipeline="one",stage="fit"} 8.0\n' in text
    assert text.count("# TYPE lockstep_etl_rows gauge") == 1
    promtool("check", "metrics", stdin=text)


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCKSTEP_METRICS", raising=False)
    monkeypatch.chdir(tmp_path)
    write_metrics(replace(survey("one")))
    assert list(tmp_path.iterdir()) == []


def test_prometheus_takes_its_configuration(tmp_path: Path) -> None:
    ports = {name: number for number, name in enumerate([*PORTS, *MONITORING_PORTS], start=40_000)}
    places = Places(tmp_path, ports, tmp_path / "sockets", {})
    (tmp_path / "prometheus.yml").write_text(json.dumps(monitoring.prometheus_conf(places)))
    promtool("check", "config", tmp_path / "prometheus.yml")
    page = monitoring.links(places)
    assert all(f'"http://127.0.0.1:{ports[name]}"' in page for name in ("mlflow", "jobs", "spark-ui"))


def test_p8_grafana_has_a_password_of_its_own_which_the_page_of_links_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its default is admin, which every user of the machine knows."""
    monkeypatch.setattr(shutil, "which", lambda program: f"/usr/bin/{program}")
    ports = {name: number for number, name in enumerate([*PORTS, *MONITORING_PORTS], start=40_000)}
    places = Places(tmp_path, ports, tmp_path / "sockets", {})
    (grafana,) = [service for service in monitoring.services(places) if service.name == "grafana"]
    file = tmp_path / "secrets/grafana-password"
    assert grafana.variables["GF_SECURITY_ADMIN_PASSWORD"] == file.read_text() and len(file.read_text()) == 64
    assert file.stat().st_mode & 0o77 == 0
    page = monitoring.links(places)
    assert str(file) in page and file.read_text() not in page
