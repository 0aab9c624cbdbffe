"""`endpoint`: how `cluster/serve.py` serves a model over HTTP."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field, PositiveFloat, PositiveInt

from pipelines.config.section import Section


def _is_model(uri: str) -> str:
    if uri and not re.fullmatch(r"models:/[^/@]+(/\d+|@[^/@]+)?", uri):
        raise ValueError("must be models:/NAME@ALIAS, models:/NAME/VERSION or models:/m-… of a logged model")
    return uri


class Endpoint(Section):
    """The HTTP endpoint of a model."""

    model: Annotated[str, AfterValidator(_is_model)] = ""
    """URI of the model; by default models:/NAME@champion, NAME being that of the pipeline. An alias is followed: when it moves to another
    version, the endpoint serves that one."""
    follow_seconds: PositiveFloat = 5.0
    """How often each replica asks MLflow where the alias points."""
    host: str = "127.0.0.1"
    """Address to listen on. One that other machines can reach requires a token."""
    port: Annotated[int, Field(ge=1, le=65535)] = 8000
    """Port to listen on."""
    token_file: str = ""
    """File with the token that clients send as `Authorization: Bearer TOKEN`; LOCKSTEP_TOKEN contains it otherwise. Without either, no
    token is required."""
    replicas: PositiveInt = 1
    """Processes that predict, each with one CPU and its own copy of the model."""
    max_batch_rows: PositiveInt = 1_024
    """Maximum number of rows, of any number of requests, that a replica predicts together. It takes those that wait, and does not wait
    for more."""
    waiting_requests: PositiveInt = 256
    """Requests that a replica holds, predicting or waiting; further ones are answered 503."""
    rows_per_request: PositiveInt = 10_000
    """Maximum number of rows of a request; more are answered 413."""
    bytes_per_request: PositiveInt = 8 * 2**20
    """Maximum size of a request; more are answered 413."""
    request_seconds: PositiveFloat = 30.0
    """Time for a request to arrive, headers and body; slower ones are answered 408 and cut off."""
