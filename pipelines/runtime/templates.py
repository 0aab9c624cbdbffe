"""Jinja templates of a package's pages: they hold the markup, and escape every value that they print."""

from collections.abc import Callable

from jinja2 import Environment, PackageLoader, StrictUndefined


def template_environment(package: str, printed: Callable[[object], object] | None = None) -> Environment:
    """The templates in the folder `templates` of a package. `printed` turns a value into the text that a template prints.

    A name that a template does not get is an error.
    """
    return Environment(
        loader=PackageLoader(package), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=printed
    )
