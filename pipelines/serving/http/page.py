"""The page for people: inputs and answers of the model, with an example, as one HTML file without scripts."""

import json
from functools import cache
from typing import Any

from jinja2 import Template

from pipelines.runtime.templates import template_environment
from pipelines.serving.http.forms import FORMS, ROWS


def endpoint_page(description: dict[str, Any]) -> str:
    """HTML of an OpenAPI description from `schema.openapi`."""
    about, post = description["info"], description["paths"]["/invocations"]["post"]
    request, answers = post["requestBody"]["content"]["application/json"], post["responses"]
    predictions = answers["200"]["content"]["application/json"]["schema"]["properties"]["predictions"]
    return _template().render(
        title=f"{about['title']}, version {about['version']}",
        example=json.dumps(request["example"], indent=1, ensure_ascii=False),
        other_forms=FORMS[1:],
        input_columns=request["schema"]["properties"][ROWS]["items"]["properties"],
        output_columns=predictions["items"]["properties"],
        answers=answers,
    )


@cache
def _template() -> Template:
    return template_environment("pipelines.serving.http").get_template("endpoint.html")
