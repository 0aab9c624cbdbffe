"""MLflow on PostgreSQL, with proxied artifacts and basic authentication."""

import base64
import signal
from functools import partial
from pathlib import Path

import postgres
from credentials import content, secret, write
from http_json import get_json
from places import Places
from service import Service

USER = "admin"


def database(places: Places) -> Service:
    # SIGINT is PostgreSQL's fast shutdown: it ends sessions and writes all data.
    answers, stop = partial(postgres.answers, places), signal.SIGINT
    return Service("postgres", places.at("postgres"), postgres.command(places), {}, answers, places.folder, stop=stop)


def server(places: Places) -> Service:
    folder, host = places.folder, places.host("mlflow")
    variables = {
        "MLFLOW_BACKEND_STORE_URI": _store(places, "mlflow"),
        "MLFLOW_AUTH_CONFIG_PATH": str(folder / "conf/mlflow-auth.ini"),
        "MLFLOW_FLASK_SERVER_SECRET_KEY": content(secret(folder, "mlflow-key")),
        "PGPASSFILE": str(folder / "conf/pgpass"),
        # Job execution is for features that are not used here, and starts processes that outlive the server.
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    options = ["--host", host.address, "--port", str(places.ports["mlflow"]), "--artifacts-destination", str(folder / "artifacts")]
    command = ["mlflow", "server", "--app-name", "basic-auth", "--workers", "1", "--serve-artifacts", *options]
    login = base64.b64encode(f"{USER}:{content(password(folder))}".encode()).decode()

    def healthy() -> bool:
        experiment = f"{address(places)}/api/2.0/mlflow/experiments/get?experiment_id=0"
        return "experiment" in get_json(experiment, Authorization=f"Basic {login}")

    return Service("mlflow", address(places), [*host.enter, *command], variables, healthy, folder)


def address(places: Places) -> str:
    return f"http://{places.at('mlflow')}"


def password(folder: Path) -> Path:
    """The file of the administrator's password."""
    return secret(folder, "mlflow-password")


def write_conf(places: Places) -> None:
    login = {
        "default_permission": "NO_PERMISSIONS",
        "database_uri": _store(places, "mlflow_auth"),
        "admin_username": USER,
        "admin_password": content(password(places.folder)),
        "authorization_function": "mlflow.server.auth:authenticate_request_basic_auth",
    }
    lines = ["[mlflow]\n", *(f"{key} = {value}\n" for key, value in login.items())]
    write(places.folder / "conf/mlflow-auth.ini", "".join(lines))
    postgres.write_password_file(places.folder)


def _store(places: Places, name: str) -> str:
    """A database's URI without a password, which libpq reads from PGPASSFILE."""
    return f"postgresql+psycopg://mlflow@{places.at('postgres')}/{name}"
