"""MLflow on PostgreSQL, with proxied artifacts and basic authentication."""

import base64
import signal
from pathlib import Path

import postgres
from asking import asked
from credentials import content, secret, write
from ray_on_loopback import HOST
from service import Service

USER = "admin"


def database(folder: Path, ports: dict[str, int]) -> Service:
    port = ports["postgres"]
    command = postgres.command(folder, port)
    # SIGINT ends sessions and writes what there is to write.
    return Service("postgres", f"{HOST}:{port}", command, {}, lambda: postgres.answers(folder, port), folder, stop=signal.SIGINT)


def server(folder: Path, ports: dict[str, int]) -> Service:
    variables = {
        "MLFLOW_BACKEND_STORE_URI": _store(ports, "mlflow"),
        "MLFLOW_AUTH_CONFIG_PATH": str(folder / "conf/mlflow-auth.ini"),
        "MLFLOW_FLASK_SERVER_SECRET_KEY": content(secret(folder, "mlflow-key")),
        "PGPASSFILE": str(folder / "conf/pgpass"),
        # Job execution serves features that are not used here, with processes that outlive the server.
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    where = ["--host", HOST, "--port", str(ports["mlflow"]), "--artifacts-destination", str(folder / "artifacts")]
    command = ["mlflow", "server", "--app-name", "basic-auth", "--workers", "1", "--serve-artifacts", *where]
    login = base64.b64encode(f"{USER}:{content(password(folder))}".encode()).decode()

    def healthy() -> bool:
        experiment = f"{address(ports)}/api/2.0/mlflow/experiments/get?experiment_id=0"
        return "experiment" in asked(experiment, Authorization=f"Basic {login}")

    return Service("mlflow", address(ports), command, variables, healthy, folder)


def address(ports: dict[str, int]) -> str:
    return f"http://{HOST}:{ports['mlflow']}"


def password(folder: Path) -> Path:
    """The file with it."""
    return secret(folder, "mlflow-password")


def write_conf(folder: Path, ports: dict[str, int]) -> None:
    login = {
        "default_permission": "NO_PERMISSIONS",
        "database_uri": _store(ports, "mlflow_auth"),
        "admin_username": USER,
        "admin_password": content(password(folder)),
        "authorization_function": "mlflow.server.auth:authenticate_request_basic_auth",
    }
    lines = ["[mlflow]\n", *(f"{key} = {value}\n" for key, value in login.items())]
    write(folder / "conf/mlflow-auth.ini", "".join(lines))
    postgres.write_password_file(folder)


def _store(ports: dict[str, int], name: str) -> str:
    """Without a password: libpq finds that in PGPASSFILE."""
    return f"postgresql+psycopg://mlflow@{HOST}:{ports['postgres']}/{name}"
