"""The page for people: inputs and answers of the model, with an example, as one HTML file without scripts."""

import json
from html import escape
from typing import Any

from pipelines.serving.http.forms import FORMS, ROWS

_STYLE = "body{font:16px sans-serif;max-width:60em;margin:2em auto;padding:0 1em}td{padding:.2em 1em .2em 0}pre{overflow:auto}"


def page(description: dict[str, Any]) -> str:
    """HTML of an OpenAPI description from `schema.openapi`."""
    post = description["paths"]["/invocations"]["post"]
    content = post["requestBody"]["content"]["application/json"]
    row = content["schema"]["properties"][ROWS]["items"]
    outputs = post["responses"]["200"]["content"]["application/json"]["schema"]["properties"]["predictions"]["items"]["properties"]
    columns = "".join(f"<tr><td>{escape(name)}<td>{escape(column['description'])}" for name, column in row["properties"].items())
    statuses = "".join(f"<tr><td>{status}<td>{escape(answer['description'])}" for status, answer in post["responses"].items())
    title = escape(f"{description['info']['title']}, version {description['info']['version']}")
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>{_STYLE}</style><h1>{title}</h1>"
        f"<p>POST rows to <code>/invocations</code>; <a href=openapi.json>openapi.json</a> describes it for programs."
        f"<pre>{escape(json.dumps(content['example'], indent=1, ensure_ascii=False))}</pre>"
        f"<p>The forms <code>{'</code>, <code>'.join(FORMS[1:])}</code> of MLflow will do as well."
        f"<h2>Columns of a row</h2><table>{columns}</table>"
        f"<h2>Columns of a prediction</h2><p>{escape(', '.join(outputs))}"
        f"<h2>Answers</h2><table>{statuses}</table></html>"
    )
