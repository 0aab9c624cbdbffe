"""Describes requests and answers of an endpoint as JSON schema and OpenAPI, and shows them to people: inputs and
answers of the model, with an example, as one HTML file without scripts."""

import json
from typing import Any

import pyarrow as pa
import pyarrow.types as types

from pipelines.config.serving import Endpoint
from pipelines.data.features.arrays import is_bytes
from pipelines.data.features.raw import is_list, is_number
from pipelines.runtime.templates import template_environment
from pipelines.serving.http.request import FORMS, ROWS
from pipelines.serving.http.served_model import ServedModel
from pipelines.serving.model import REFUSED

Schema = dict[str, Any]
_REFUSALS = {
    "400": "The request is not JSON.",
    "408": "The request took too long to arrive.",
    "401": "The token is missing or wrong.",
    "413": "The request has too many bytes or rows.",
    "422": "The request has none of MLflow's forms.",
    "503": "Too many requests wait; send it again later.",
}
"""Reasons by HTTP status."""


def openapi(served: ServedModel, settings: Endpoint, needs_token: bool) -> Schema:
    """OpenAPI 3.1 of the endpoint as it serves this model."""
    health = {"get": {"summary": "Whether a replica answers, and with which model", "responses": {"200": {"description": "It does."}}}}
    metrics = {"get": {"summary": "Counters for Prometheus", "responses": {"200": {"description": "Text."}}}}
    description: Schema = {
        "openapi": "3.1.0",
        "info": {"title": f"Model {served.digest[:12]}", "version": served.version},
        "paths": {"/invocations": {"post": _invocation(served, settings)}, "/health": health, "/metrics": metrics},
    }
    if needs_token:
        description["components"] = {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}}
        description["security"] = [{"token": []}]
    return description


def _invocation(served: ServedModel, settings: Endpoint) -> Schema:
    """The operation that predicts rows."""
    predictor, series = served.predictor, served.predictor.series_inputs
    columns = {
        # Whether a NULL is refused is up to the column's encoder.
        field.name: {"anyOf": [_type_schema(field.type), {"type": "null"}], "description": str(field.type)}
        for field in predictor.columns_taken
    }
    required = list(series.shared_names if series else predictor.inputs.names)
    row = {"type": "object", "properties": columns, "required": required}
    request = {
        "type": "object",
        "properties": {ROWS: {"type": "array", "items": row, "maxItems": settings.rows_per_request}},
        "required": [ROWS],
    }
    outputs = {name: _type_schema(pa.array(values).type) for name, values in predictor.outputs.items()}
    nullable = {str(name): {"anyOf": [kind, {"type": "null"}]} for name, kind in outputs.items()}
    prediction = {"type": "object", "properties": {**nullable, REFUSED: {"type": ["string", "null"]}}}
    answer = {"type": "object", "properties": {"predictions": {"type": "array", "items": prediction}}}
    return {
        "summary": "Predict rows",
        "description": f"Rows may also come in another of MLflow's forms: {', '.join(FORMS[1:])}."
        + (f" Or they are the last rows of series, with the columns {', '.join(series.schema.names)}." if series else ""),
        "requestBody": {"required": True, "content": {"application/json": {"schema": request, "example": {ROWS: [served.example]}}}},
        "responses": {
            "200": {"description": "One prediction for each row.", "content": {"application/json": {"schema": answer}}},
            **{status: {"description": reason} for status, reason in _REFUSALS.items()},
        },
    }


def _type_schema(kind: pa.DataType) -> Schema:
    if is_list(kind):
        return {"type": "array", "items": {"anyOf": [_type_schema(kind.value_type), {"type": "null"}]}}
    if types.is_boolean(kind):
        return {"type": "boolean"}
    if types.is_integer(kind):
        return {"type": "integer"}
    if is_number(kind):
        return {"type": "number"}
    if types.is_temporal(kind):
        return {"type": "string", "format": "date" if types.is_date(kind) else "date-time"}
    return {"type": "string", "contentEncoding": "base64"} if is_bytes(kind) else {"type": "string"}


def endpoint_page(description: dict[str, Any]) -> str:
    """HTML of an OpenAPI description from `openapi`."""
    about, post = description["info"], description["paths"]["/invocations"]["post"]
    request, answers = post["requestBody"]["content"]["application/json"], post["responses"]
    predictions = answers["200"]["content"]["application/json"]["schema"]["properties"]["predictions"]
    template = template_environment("pipelines.serving.http").get_template("endpoint.html")
    return template.render(
        title=f"{about['title']}, version {about['version']}",
        example=json.dumps(request["example"], indent=1, ensure_ascii=False),
        other_forms=FORMS[1:],
        input_columns=request["schema"]["properties"][ROWS]["items"]["properties"],
        output_columns=predictions["items"]["properties"],
        answers=answers,
    )
