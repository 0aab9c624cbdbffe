"""PostgreSQL for MLflow: a database cluster in a folder, whose passwords lie in files."""

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
"""PostgreSQL refuses to run as root, which then runs it as this user of Debian's package."""


def programs() -> Path:
    """The folder of `initdb` and `postgres`, which Debian leaves out of PATH."""
    found = shutil.which("initdb")
    newest_last = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: float(folder.parent.name))
    if not found and not newest_last:
        sys.exit("PostgreSQL is not here; Debian, Ubuntu: sudo apt-get install postgresql; else put its programs into PATH")
    return Path(found).parent if found else newest_last[-1]


def initialise(folder: Path) -> None:
    """Make the data's folder, unless it is there; who may come in is written anew."""
    data = _data(folder)
    if not (data / "PG_VERSION").exists():
        _make(data, folder)
    # Whoever has a password: to whom it listens is its command's to say.
    (data / "pg_hba.conf").write_text("host all all all scram-sha-256\n")


def _make(data: Path, folder: Path) -> None:
    superuser = data.with_name("postgres-password.new")  # beside the data: initdb wants an empty folder
    try:
        write(superuser, secret(folder, "postgres-password").read_text())
        if _as_owner():
            shutil.chown(superuser, _OWNER)
        login = ["--username=postgres", "--auth=scram-sha-256", f"--pwfile={superuser}"]
        made = [*_as_owner(), str(programs() / "initdb"), "-D", str(data), "--encoding=UTF8", "--locale=C", *login]
        done = subprocess.run(made, capture_output=True, text=True, cwd="/", check=False)
    finally:
        superuser.unlink(missing_ok=True)
    if done.returncode:
        sys.exit(f"{data} could not be made a database:\n{done.stdout[-1000:]}{done.stderr[-1000:]}")


def command(places: Places) -> list[str]:
    """Starts the server on the data that `initialise` has made."""
    host, port = places.host("postgres"), str(places.ports["postgres"])
    options = {"listen_addresses": host.address, "port": port, "unix_socket_directories": "", "password_encryption": "scram-sha-256"}
    settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
    return [*host.enter, *_as_owner(), str(programs() / "postgres"), "-D", str(places.folder / "postgres"), *settings]


def answers(places: Places) -> bool:
    try:
        with _connected(places):
            return True
    except psycopg.OperationalError:
        return False


def prepare(places: Places) -> None:
    """The role and the databases of MLflow, where they are not there yet."""
    password = content(secret(places.folder, "mlflow-database-password"))
    with _connected(places) as server:
        server.execute("SET log_min_error_statement = panic")  # a statement that fails would be logged with its password
        if not server.execute("SELECT FROM pg_roles WHERE rolname = 'mlflow'").rowcount:
            server.execute("CREATE ROLE mlflow LOGIN")
        server.execute(sql.SQL("ALTER ROLE mlflow PASSWORD {}").format(sql.Literal(password)))
        for name in DATABASES:
            if not server.execute("SELECT FROM pg_database WHERE datname = %s", (name,)).rowcount:
                server.execute(sql.SQL("CREATE DATABASE {} OWNER mlflow").format(sql.Identifier(name)))


def write_password_file(folder: Path) -> None:
    """For PGPASSFILE: so that MLflow's addresses of its databases hold no password."""
    password = content(secret(folder, "mlflow-database-password"))
    write(private(folder / "conf") / "pgpass", f"*:*:*:mlflow:{password}\n")


def _connected(places: Places) -> psycopg.Connection:
    host, port, password = places.host("postgres").address, places.ports["postgres"], content(secret(places.folder, "postgres-password"))
    return psycopg.connect(host=host, port=port, user="postgres", password=password, dbname="postgres", autocommit=True, connect_timeout=5)


def _data(folder: Path) -> Path:
    """The folder of the data, which belongs to whom the server runs as."""
    data = folder / "postgres"
    data.mkdir(mode=0o700, exist_ok=True)
    if _as_owner():
        owner = pwd.getpwnam(_OWNER)
        os.chown(data, owner.pw_uid, owner.pw_gid)
        if subprocess.run([*_as_owner(), "test", "-w", str(data)], check=False).returncode:
            sys.exit(
                f"{data} cannot be reached by the user {_OWNER}, as whom root has to run PostgreSQL; "
                "set LOCKSTEP_CLUSTER to a folder below one that all may enter, such as /var/tmp/lockstep"
            )
    return data


def _as_owner() -> list[str]:
    """Prefix of a command that root has to run as somebody else."""
    if os.geteuid():
        return []
    try:
        pwd.getpwnam(_OWNER)
    except KeyError:
        sys.exit(f"root has to run PostgreSQL as the user {_OWNER}, whom Debian's package makes and this machine lacks")
    return ["setpriv", f"--reuid={_OWNER}", f"--regid={_OWNER}", "--clear-groups"]
