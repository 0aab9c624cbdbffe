"""How Ray Serve writes HAProxy's configuration: a template with settings of its own."""

from importlib.util import find_spec
from pathlib import Path

from pipelines.errors import MismatchError

RETRY_ON, BALANCE = "RAY_SERVE_HAPROXY_RETRY_ON", "RAY_SERVE_HAPROXY_BALANCE_ALGORITHM"
_LINES = {RETRY_ON: "\n    retry-on {{ config.retry_on }}\n", BALANCE: "\n    balance {{ config.balance_algorithm }}\n"}
"""The line of the template that a variable's text ends. That of BALANCE comes after the answers to errors."""


def append_default_option(variable: str, value: str, option: str) -> str:
    """A value for RETRY_ON or BALANCE that adds a line with `option` to the section `defaults`.

    Ray has no setting for options that its template lacks. The template writes these variables' texts, as they are, at the end of a line of
    that section. Raises MismatchError if it does not.
    """
    ray = find_spec("ray")
    assert ray is not None and ray.origin is not None
    for name, text in {"haproxy_templates.py": _LINES[variable], "constants.py": f'"{variable}"'}.items():
        if text not in (Path(ray.origin).parent / "serve/_private" / name).read_text(encoding="utf-8"):
            raise MismatchError(f"ray.serve has another {name} than {variable} was written for; install ray as in constraints.txt")
    return f"{value}\n    {option}"
