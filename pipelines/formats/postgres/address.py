"""Addresses of databases, `postgresql://user@host:port/database?parameters`, as libpq reads them."""

import re
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from pipelines.config.secrets import has_login

SCHEMES = ("postgresql", "postgres")
_DEFAULTS = {"keepalives_idle": "60", "connect_timeout": "20", "fallback_application_name": "lockstep"}
"""Parameters of connections unless the address has them. A firewall may drop a connection that is idle, as the driver's is while tasks
read."""
_ENCODING = {"client_encoding": "utf8"}
"""Of all that is sent: else it would be that of the database, and ADBC takes all texts for UTF-8."""


def address_fault(url: str) -> str:
    """Why the address names no single database without a password; empty if it does."""
    example = "give postgresql://user@host:5432/database"
    # As in texts of a config, since a password may have characters that urlsplit takes for the end of the host.
    if has_login(url) or re.search("://[^@?]*/[^?]*@", url):
        return "the address has a password, which every viewer of a run could read; set PGPASSWORD, or write it to the file of PGPASSFILE"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        if "," in url:
            return f"{without_login(url)} names several hosts, and a snapshot is one server's; give one host"
        return f"{without_login(url)} is no address; {example}"
    parameters = dict(parse_qsl(parts.query))
    if parts.scheme not in SCHEMES:
        return f"{without_login(url)} is no address of PostgreSQL; {example}"
    if "," in (host or "") or "," in parameters.get("host", ""):
        return f"{without_login(url)} names several hosts, and a snapshot is one server's; give one host"
    if not parts.path.strip("/") and "dbname" not in parameters:
        return f"{without_login(url)} names no database; {example}"
    return ""


def without_login(url: str) -> str:
    """The address without user, password and parameters, for messages."""
    return re.sub(r"://[^?]*@", "://", url).partition("?")[0]


def connection_address(url: str) -> str:
    """The address with the parameters that connections have."""
    parts = urlsplit(url)
    parameters = {**_DEFAULTS, **dict(parse_qsl(parts.query, keep_blank_values=True)), **_ENCODING}
    return urlunsplit((*parts[:3], urlencode(parameters, quote_via=quote, safe="/:"), parts.fragment))


def split_address(address: str) -> tuple[str, dict[str, str]]:
    """The address of a database, and the settings in its parameters that are none of libpq's: `table` and `query`."""
    parts = urlsplit(address)
    parameters = dict(parse_qsl(parts.query))
    settings = {str(name): parameters.pop(name) for name in ("table", "query") if name in parameters}
    return urlunsplit((*parts[:3], urlencode(parameters, quote_via=quote, safe="/:"), parts.fragment)), settings


def quote_postgres_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    quoted = "'" + text.replace("'", "''") + "'"
    return " E" + quoted.replace("\\", "\\\\") if "\\" in text else quoted


def quote_table(name: str) -> str:
    """A table's name as SQL has it, `schema.name`, with quotes around every part. Outside of quotes, capitals become small letters, as in
    PostgreSQL. Raises ValueError for what is no name."""
    parts = re.fullmatch(r'\s*("(?:[^"]|"")+"|[^".\s]+)(?:\.("(?:[^"]|"")+"|[^".\s]+))?\s*', name)
    if not parts:
        raise ValueError(f'{name} is no name of a table; give table, schema.table, or names in quotes, such as "My Schema"."My Table"')
    return ".".join(part if part.startswith('"') else quote_postgres_name(part.lower()) for part in parts.groups() if part)
