"""PostgreSQL for MLflow: a database cluster in a folder, with its passwords in files."""

import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

import psycopg
from credentials import content, private, secret, write
from places import Places
from psycopg import sql

DATABASES = ("mlflow", "mlflow_auth")
_OWNER = "postgres"
"""The user of Debian's package, as which root runs PostgreSQL, since that refuses to run as root."""


def programs() -> Path:
    """The folder of `initdb` and `postgres`, which Debian leaves out of PATH."""
    initdb = shutil.which("initdb")
    newest_last = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: float(folder.parent.name))
    if not initdb and not newest_last:
        sys.exit("PostgreSQL is not installed; Debian, Ubuntu: sudo apt-get install postgresql; else put its programs into PATH")
    return Path(initdb).parent if initdb else newest_last[-1]


def initialise(folder: Path) -> None:
    """Create the data folder, unless it exists, and write its access rules."""
    data = _data(folder)
    if not (data / "PG_VERSION").exists():
        _create(data, folder)
    # Any address, with a password: the command line limits the addresses that the server listens on.
    (data / "pg_hba.conf").write_text("host all all all scram-sha-256\n", encoding="utf-8")


def _create(data: Path, folder: Path) -> None:
    superuser = data.with_name("postgres-password.new")  # beside the data, since initdb needs an empty folder
    try:
        write(superuser, secret(folder, "postgres-password").read_text(encoding="utf-8"))
        if _as_owner():
            shutil.chown(superuser, _OWNER)
        login = ["--username=postgres", "--auth=scram-sha-256", f"--pwfile={superuser}"]
        initdb = [*_as_owner(), str(programs() / "initdb"), "-D", str(data), "--encoding=UTF8", "--locale=C", *login]
        process = subprocess.run(initdb, capture_output=True, text=True, cwd="/", check=False)
    finally:
        superuser.unlink(missing_ok=True)
    if process.returncode:
        sys.exit(f"initdb could not create a database in {data}:\n{process.stdout[-1000:]}{process.stderr[-1000:]}")


def command(places: Places) -> list[str]:
    """The command that starts the server on the data that `initialise` has created."""
    host, port = places.host("postgres"), str(places.ports["postgres"])
    options = {"listen_addresses": host.address, "port": port, "unix_socket_directories": "", "password_encryption": "scram-sha-256"}
    settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
    return [*host.enter, *_as_owner(), str(programs() / "postgres"), "-D", str(places.folder / "postgres"), *settings]


def answers(places: Places) -> bool:
    try:
        with _connect(places):
            return True
    except psycopg.OperationalError:
        return False


def prepare(places: Places) -> None:
    """Create MLflow's role and databases, unless they exist."""
    password = content(secret(places.folder, "mlflow-database-password"))
    with _connect(places) as server:
        server.execute("SET log_min_error_statement = panic")  # else a failing statement would be logged with the password
        if not server.execute("SELECT FROM pg_roles WHERE rolname = 'mlflow'").rowcount:
            server.execute("CREATE ROLE mlflow LOGIN")
        server.execute(sql.SQL("ALTER ROLE mlflow PASSWORD {}").format(sql.Literal(password)))
        for name in DATABASES:
            if not server.execute("SELECT FROM pg_database WHERE datname = %s", (name,)).rowcount:
                server.execute(sql.SQL("CREATE DATABASE {} OWNER mlflow").format(sql.Identifier(name)))


def write_password_file(folder: Path) -> None:
    """Write the file for PGPASSFILE, so that MLflow's database URIs contain no password."""
    password = content(secret(folder, "mlflow-database-password"))
    write(private(folder / "conf") / "pgpass", f"*:*:*:mlflow:{password}\n")


def _connect(places: Places) -> psycopg.Connection:
    host, port, password = places.host("postgres").address, places.ports["postgres"], content(secret(places.folder, "postgres-password"))
    return psycopg.connect(host=host, port=port, user="postgres", password=password, dbname="postgres", autocommit=True, connect_timeout=5)


def _data(folder: Path) -> Path:
    """The data folder, owned by the user that runs the server."""
    data = folder / "postgres"
    data.mkdir(mode=0o700, exist_ok=True)
    if _as_owner():
        owner = pwd.getpwnam(_OWNER)
        os.chown(data, owner.pw_uid, owner.pw_gid)
        if subprocess.run([*_as_owner(), "test", "-w", str(data)], check=False).returncode:
            sys.exit(
                f"the user {_OWNER}, as which root has to run PostgreSQL, cannot write to {data}; "
                "set LOCKSTEP_CLUSTER to a folder that all users can reach, such as /var/tmp/lockstep"
            )
    return data


def _as_owner() -> list[str]:
    """The prefix of a command that root has to run as another user."""
    if os.geteuid():
        return []
    try:
        pwd.getpwnam(_OWNER)
    except KeyError:
        sys.exit(f"root has to run PostgreSQL as the user {_OWNER}, which does not exist here; Debian's package creates it")
    return ["setpriv", f"--reuid={_OWNER}", f"--regid={_OWNER}", "--clear-groups"]
