"""Prometheus and Grafana, where they are installed, and a page of links to the interfaces of all servers.

Prometheus asks Ray's agents, which Ray lists in a file, Spark's master and workers, and the exporter of the files that ETLs leave.
All of them listen on this machine's loopback. Grafana is not in Debian; it shows the dashboard of cluster/monitoring.
"""

import json
import os
import shutil
import sys
import urllib.error
import urllib.request
from html import escape
from pathlib import Path

import mlflow_server
from credentials import content, private, secret, write
from places import Places
from service import Service

MONITORING = Path(__file__).parents[1] / "monitoring"
GRAFANA_USER = "admin"
GRAFANA_HOMES = ("/usr/share/grafana", "/opt/grafana")


def services(places: Places) -> list[Service]:
    """The exporter, Prometheus and Grafana, as far as they are installed."""
    installed = []
    if shutil.which("prometheus"):
        installed += [_textfiles(places), _prometheus(places)]
        if shutil.which("grafana-server"):
            installed.append(_grafana(places))
    return installed


def textfiles_folder(places: Places) -> Path:
    """The folder for the numbers of ETLs, LOCKSTEP_METRICS."""
    return places.folder / "metrics"


def write_conf(places: Places) -> None:
    private(textfiles_folder(places))
    private(places.folder / "prometheus")
    write(places.folder / "conf/prometheus.yml", json.dumps(prometheus_conf(places), indent=1))  # JSON is YAML
    write(places.folder / "links.html", links(places))


def prometheus_conf(places: Places) -> dict[str, object]:
    def spark(name: str, port: str, path: str) -> dict[str, object]:
        return {"job_name": name, "metrics_path": path, "static_configs": [{"targets": [places.at(port)]}]}

    discovery_file = str(places.sockets / "head/prom_metrics_service_discovery.json")
    return {
        "global": {"scrape_interval": "10s", "evaluation_interval": "10s"},
        "rule_files": [str(MONITORING / "alerts.yml")],
        "scrape_configs": [
            {"job_name": "ray", "file_sd_configs": [{"files": [discovery_file]}]},
            {"job_name": "etl", "static_configs": [{"targets": [places.at("textfiles")]}]},
            spark("spark-master", "spark-ui", "/metrics/master/prometheus/"),
            spark("spark-applications", "spark-ui", "/metrics/applications/prometheus/"),
            spark("spark-worker-1", "worker-1", "/metrics/prometheus/"),
            spark("spark-worker-2", "worker-2", "/metrics/prometheus/"),
        ],
    }


def links(places: Places) -> str:
    """A page of HTML with the interfaces of all servers."""
    pages = {
        "MLflow": (mlflow_server.address(places), "runs, models, the pages about data and training"),
        "Ray": (f"http://{places.at('jobs')}", "jobs, actors, logs of the workers"),
        "Spark": (f"http://{places.at('spark-ui')}", "applications; a running one links to its stages"),
    }
    running = {service.name: service.address for service in services(places)}
    if "prometheus" in running:
        pages["Prometheus"] = (running["prometheus"], "metrics and alerts")
    if "grafana" in running:
        login = f"for {GRAFANA_USER} with the password in {_grafana_password(places)}"
        pages["Grafana"] = (f"{running['grafana']}/d/lockstep", f"the dashboard, {login}")
    rows = "\n".join(f'<p><a href="{escape(address)}">{name}</a> {escape(text)}</p>' for name, (address, text) in pages.items())
    style = "body{font:18px/1.6 system-ui,sans-serif;max-width:40em;margin:3em auto;padding:0 1em;color:#1b1b1f}a{color:#0072b2}"
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Lockstep</title><style>{style}</style>'
    body = f"<h1>Lockstep on {escape(os.uname().nodename)}</h1>\n{rows}"
    return f"<!doctype html><html lang=en><head>{head}</head><body>{body}\n</body></html>\n"


def _textfiles(places: Places) -> Service:
    command = [sys.executable, str(Path(__file__).with_name("textfiles.py"))]
    command += [str(textfiles_folder(places)), str(places.ports["textfiles"])]
    page = f"http://{places.at('textfiles')}/metrics"
    return Service("textfiles", page, command, {}, lambda: _answers(page), places.folder)


def _prometheus(places: Places) -> Service:
    page = f"http://{places.at('prometheus')}"
    command = [
        "prometheus",
        f"--config.file={places.folder / 'conf/prometheus.yml'}",
        f"--storage.tsdb.path={places.folder / 'prometheus'}",
        f"--web.listen-address={places.at('prometheus')}",
    ]
    return Service("prometheus", page, command, {}, lambda: _answers(f"{page}/-/ready"), places.folder)


def _grafana(places: Places) -> Service:
    page = f"http://{places.at('grafana')}"
    variables = {
        "GF_SERVER_HTTP_ADDR": places.at("grafana").partition(":")[0],
        "GF_SERVER_HTTP_PORT": str(places.ports["grafana"]),
        "GF_SECURITY_ADMIN_USER": GRAFANA_USER,
        "GF_SECURITY_ADMIN_PASSWORD": content(_grafana_password(places)),  # by default it is admin, for every user of the machine
        "GF_PATHS_DATA": str(private(places.folder / "grafana")),
        "GF_PATHS_PROVISIONING": str(MONITORING / "grafana/provisioning"),
        "GF_ANALYTICS_REPORTING_ENABLED": "false",
        "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
        "LOCKSTEP_PROMETHEUS": f"http://{places.at('prometheus')}",
        "LOCKSTEP_DASHBOARDS": str(MONITORING / "grafana/dashboards"),
    }
    home = next((home for home in GRAFANA_HOMES if Path(home).is_dir()), GRAFANA_HOMES[0])
    return Service(
        "grafana", page, ["grafana-server", f"--homepath={home}"], variables, lambda: _answers(f"{page}/api/health"), places.folder
    )


def _grafana_password(places: Places) -> Path:
    """The file of the administrator's password, which Grafana takes when it first starts."""
    return secret(places.folder, "grafana-password")


def _answers(page: str) -> bool:
    try:
        with urllib.request.urlopen(page, timeout=5) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False
