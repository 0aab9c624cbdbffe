"""How Ray Serve writes HAProxy's configuration: a template with settings of its own."""


def with_defaults_option(retry_on: str, option: str) -> str:
    """A value for RAY_SERVE_HAPROXY_RETRY_ON that adds a line with `option` to the section `defaults`.

    Ray has no setting for options that its template lacks. The template writes this variable's text, as it is, at the end of a line of
    that section. If that changes, HAProxy does not start.
    """
    return f"{retry_on}\n    {option}"
