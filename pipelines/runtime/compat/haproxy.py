"""How Ray Serve writes HAProxy's configuration: a template with settings of its own."""

from importlib.util import find_spec
from pathlib import Path

from pipelines.errors import MismatchError

_VARIABLE = "RAY_SERVE_HAPROXY_RETRY_ON"
_TEXTS = {"haproxy_templates.py": "\n    retry-on {{ config.retry_on }}\n", "constants.py": f'"{_VARIABLE}"'}
"""What the option depends on, by file of ray.serve._private."""


def append_default_option(retry_on: str, option: str) -> str:
    """A value for RAY_SERVE_HAPROXY_RETRY_ON that adds a line with `option` to the section `defaults`.

    Ray has no setting for options that its template lacks. The template writes this variable's text, as it is, at the end of a line of
    that section. Raises MismatchError if it does not.
    """
    ray = find_spec("ray")
    assert ray is not None and ray.origin is not None
    for name, text in _TEXTS.items():
        if text not in (Path(ray.origin).parent / "serve/_private" / name).read_text():
            raise MismatchError(f"ray.serve has another {name} than {_VARIABLE} was written for; install ray as in constraints.txt")
    return f"{retry_on}\n    {option}"
