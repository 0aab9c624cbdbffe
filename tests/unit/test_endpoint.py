"""What an endpoint takes, refuses and says of itself, without Ray."""

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from filed import CONFIG, fit_manifest, raw_rows

from pipelines.config import parse
from pipelines.config.serving import Endpoint
from pipelines.errors import ConfigError
from pipelines.serving.http.counters import Counters, ReplicaCounts
from pipelines.serving.http.openapi import endpoint_page, openapi
from pipelines.serving.http.replica import RequestBatches
from pipelines.serving.http.request import RequestError, is_authorized, parse_rows, read_body, token_digest
from pipelines.serving.http.served_model import ServedModel, _json_rows, example_row
from pipelines.serving.model import REFUSED, Predictor
from pipelines.serving.model.scoring import input_example
from pipelines.tasks.bind import build_task

SETTINGS = Endpoint(rows_per_request=3, bytes_per_request=100)
TOKEN = "0123456789abcdef"


@pytest.fixture(scope="module")
def served() -> ServedModel:
    config, raw = parse(CONFIG, "test"), raw_rows()
    manifest = fit_manifest(config.dataset, raw)
    torch.manual_seed(0)
    predictor = Predictor(config.task, manifest, build_task(config.task, manifest).model().state_dict())
    return ServedModel(predictor, "7", "ab" * 32, example_row(input_example(manifest)))


def row(**changed: Any) -> dict[str, Any]:
    """As JSON has it: bytes in base64, times as text."""
    values = {
        "age": 40.0, "children": 2, "rooms": 3, "x": 0.5, "y": 0.25, "word": "ant", "code": 5, "member": True, "born": "2024-01-05",
        "price": 1.5, "pair": [1.0, 2.0], "pixels": "AAECAw==",
    }  # fmt: skip
    return {**values, **changed}


def read(chunks: list[bytes], declared: str = "") -> bytes:
    async def stream() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    return asyncio.run(read_body(declared, stream(), SETTINGS))


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"{", 400, "the request is not JSON: "),
        (b"\xff\xfe\x00", 400, "the request is not JSON: "),
        (b"[" * 100_000, 400, "the request is not JSON: it is nested too deeply"),
        (b"[]", 422, "the request has none of dataframe_records, dataframe_split, instances, inputs where one is wanted; send "),
        (b'{"instances": [], "inputs": []}', 422, "the request has 2 forms, instances and inputs, where one is wanted; send "),
        (b'{"dataframe_records": {"age": 1}}', 422, "the request has no list dataframe_records"),
        (b'{"inputs": 5}', 422, "the request has no list inputs"),
        (b'{"instances": [[1, 2]]}', 422, "row 0 is no object of columns"),
        (b'{"inputs": {"age": [1, 2], "x": [1]}}', 422, "columns age and x of inputs have not equally many values"),
        (b'{"inputs": {"age": [1, 2], "pair": [1, 2]}}', 422, "columns age and pair of inputs have not equally many values"),
        (b'{"dataframe_split": {"data": [[1]]}}', 422, "dataframe_split is no object of two lists; send "),
        (b'{"dataframe_split": {"columns": ["age"], "data": [[1], [1, 2]]}}', 422, "row 1 of dataframe_split is no list of 1 values"),
        (b'{"dataframe_records": [{}, 5]}', 422, "row 1 is no object of columns"),
        (b'{"dataframe_records": [{}, {}, {}, {}]}', 413, "the request has 4 rows, more than 3, endpoint.rows_per_request"),
    ],
)
def test_a_request_of_another_shape_is_refused_in_one_sentence(body: bytes, status: int, message: str) -> None:
    with pytest.raises(RequestError) as error:
        parse_rows(body, SETTINGS, pa.schema({"age": pa.int32(), "x": pa.float64(), "pair": pa.list_(pa.float64())}))
    assert error.value.status == status and str(error.value).startswith(message) and "\n" not in str(error.value)


def test_all_forms_of_mlflow_give_the_same_rows() -> None:
    """As `mlflow models serve` reads them: https://mlflow.org/docs/latest/genai/serving/custom-apps."""
    inputs = pa.schema({"age": pa.int32(), "pair": pa.list_(pa.float64())})
    rows = [{"age": 1, "pair": [1.0, 2.0]}, {"age": None, "pair": None}]
    columns = {"age": [1, None], "pair": [[1.0, 2.0], None]}
    split = {"columns": ["age", "pair"], "data": [[1, [1.0, 2.0]], [None, None]]}
    for content in (
        {"dataframe_records": rows},
        {"dataframe_split": split},
        {"dataframe_split": {**split, "index": ["a", "b"]}, "params": {}},
        {"instances": rows},
        {"instances": columns},
        {"inputs": rows},
        {"inputs": columns},
    ):
        assert parse_rows(json.dumps(content).encode(), SETTINGS, inputs) == rows
    assert parse_rows(b'{"inputs": {"age": 1, "pair": [1, 2]}}', SETTINGS, inputs) == [{"age": 1, "pair": [1, 2]}]
    single = pa.schema({"word": pa.string()})
    assert parse_rows(b'{"instances": ["a", "b"]}', SETTINGS, single) == [{"word": "a"}, {"word": "b"}]
    assert parse_rows(b'{"inputs": {"word": []}}', SETTINGS, single) == []


def test_the_example_is_a_row_that_the_model_takes(served: ServedModel) -> None:
    ((answer,),) = served.answers([[json.loads(json.dumps(served.example, allow_nan=False))]])
    assert answer[REFUSED] is None and answer["prediction"] in ("true", "false")
    assert None not in served.example.values()


def test_a_client_that_sends_a_byte_now_and_then_is_refused() -> None:
    """The stream never ends: what waits for it is cut off."""
    never = asyncio.Event

    async def dripping() -> AsyncIterator[bytes]:
        yield b"a"
        await never().wait()

    with pytest.raises(RequestError, match=r"took longer than 0\.01 s to arrive, endpoint\.request_seconds") as error:
        asyncio.run(read_body("", dripping(), Endpoint(request_seconds=0.01)))
    assert error.value.status == 408


def test_a_large_request_is_refused_before_it_is_read_and_while_it_is() -> None:
    assert read([b"a" * 60, b"b" * 40]) == b"a" * 60 + b"b" * 40
    for chunks, declared in (([], "101"), ([b"a" * 60, b"b" * 41], "")):
        with pytest.raises(RequestError, match="more than 100 bytes") as error:
            read(chunks, declared)
        assert error.value.status == 413


def test_rows_of_several_requests_are_predicted_as_each_alone(served: ServedModel) -> None:
    requests = [[row(), row(age=80.0)], [], [row(word=None)]]
    together = served.answers(requests)
    assert [len(answer) for answer in together] == [2, 0, 1]
    for request, answer in zip(requests, together, strict=True):
        alone = served.answers([request])[0]
        assert [prediction["prediction"] for prediction in alone] == [prediction["prediction"] for prediction in answer]
    json.dumps(together, allow_nan=False)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"age": "old"}, "the values of column age cannot be cast to double"),
        ({"age": True}, "the value of column age is no double: it is true"),
        ({"children": 1.5}, "the values of column children cannot be cast to int32"),
        ({"children": 2**80}, "the value of column children is no int32: it is 1208925819614629174706176"),
        ({"pair": [1.0, False]}, "the value of column pair is no list<item: double>: it is false"),
        ({"code": 2**63}, "the values of column code cannot be cast to int64"),
        ({"word": "\ud800"}, "the values of column word cannot be cast to string"),
        ({"word": 5}, "the values of column word cannot be cast to string"),
        ({"word": {"a": 1}}, "the values of column word cannot be cast to string"),
        ({"born": "yesterday-ish"}, "the value of column born is no date32[day]"),
        ({"pixels": "?"}, "the value of column pixels is no binary"),
        ({"pixels": "AAEC"}, "pixels: image cannot encode 3 bytes"),
        ({"x": None}, "place: fourier cannot encode x NULL"),
    ],
)
def test_a_row_that_cannot_be_taken_has_a_reason_and_the_others_a_prediction(
    served: ServedModel, changed: dict[str, Any], reason: str
) -> None:
    (first, third), (second,) = served.answers([[row(), row(age=20.0)], [row(**changed)]])
    assert second["prediction"] is None and second[REFUSED].startswith(reason)
    assert first[REFUSED] is None and third[REFUSED] is None
    json.dumps(second, ensure_ascii=False, allow_nan=False).encode()
    assert first["probability_true"] == pytest.approx(served.answers([[row()]])[0][0]["probability_true"], abs=1e-6)


def test_a_row_without_a_column_is_refused_alone(served: ServedModel) -> None:
    (refused_row, other) = served.answers([[{"age": 1.0}, row()]])[0]
    assert refused_row[REFUSED].startswith("the row has no column children; the model takes age, ")
    assert other["prediction"] in ("true", "false")


def test_the_description_has_the_columns_of_the_model(served: ServedModel) -> None:
    description = openapi(served, SETTINGS, needs_token=True)
    rows = description["paths"]["/invocations"]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"][
        "dataframe_records"
    ]
    assert rows["maxItems"] == 3
    kinds = {name: column["anyOf"][0] for name, column in rows["items"]["properties"].items()}
    assert kinds["age"] == {"type": "number"} and kinds["children"] == {"type": "integer"} and kinds["member"] == {"type": "boolean"}
    assert kinds["pixels"] == {"type": "string", "contentEncoding": "base64"} and kinds["born"] == {"type": "string", "format": "date"}
    assert kinds["pair"]["items"]["anyOf"][0] == {"type": "number"}
    assert description["security"] == [{"token": []}] and "security" not in openapi(served, SETTINGS, needs_token=False)
    assert "probability_true, refused" in endpoint_page(
        description
    ) and f"&#34;word&#34;: &#34;{served.example['word']}&#34;" in endpoint_page(description)


def test_a_page_shows_hostile_names_as_text(served: ServedModel) -> None:
    description = json.loads(json.dumps(openapi(served, SETTINGS, needs_token=False)).replace('"word"', '"<script>"'))
    assert "<script>" not in endpoint_page(description)


def test_a_token_is_read_and_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCKSTEP_TOKEN", raising=False)
    assert token_digest(Endpoint()) is None and is_authorized("", None)
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    digest = token_digest(Endpoint(token_file=str(file)))
    monkeypatch.setenv("LOCKSTEP_TOKEN", TOKEN)
    assert digest == token_digest(Endpoint(host="0.0.0.0"))
    assert is_authorized(f"Bearer {TOKEN}", digest) and is_authorized(f"bearer  {TOKEN} ", digest)
    password = b64encode(f"anyone:{TOKEN}".encode()).decode()
    assert is_authorized(f"Basic {password}", digest, reads_pages=True), "as a browser sends it"
    for wrong in (password, f"Basic {password}"):
        assert not is_authorized(wrong, digest)
    for wrong in ("Basic", "Basic ?", f"Basic {b64encode(TOKEN.encode()).decode()}", "Basic /w=="):
        assert not is_authorized(wrong, digest, reads_pages=True)
    for wrong in ("", TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN}0", "Bearer", "Bearer \udcff"):
        assert not is_authorized(wrong, digest)


def test_an_open_endpoint_without_a_token_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCKSTEP_TOKEN", raising=False)
    with pytest.raises(ConfigError, match=r"endpoint\.host is 0\.0\.0\.0, which other machines can reach, without a token"):
        token_digest(Endpoint(host="0.0.0.0"))
    with pytest.raises(ConfigError, match="which cannot be read"):
        token_digest(Endpoint(token_file=str(tmp_path / "nothing")))
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(ConfigError, match="has 0 characters; it must have at least 16"):
        token_digest(Endpoint(token_file=str(tmp_path / "empty")))


@pytest.mark.parametrize("uri", ["models:/", "adult", "models:/adult@", "models:/adult/latest/2", "runs:/1/model"])
def test_a_model_is_named_by_a_uri_of_mlflow(uri: str) -> None:
    with pytest.raises(ConfigError, match="models:/NAME@ALIAS"):
        Endpoint(model=uri)


def test_the_counts_of_replicas_are_added_up() -> None:
    counters = Counters()
    for replica, seconds in (("a", 0.003), ("b", 0.2)):
        counters.add(replica, "7", ReplicaCounts(requests=[(200, seconds), (200, 1.5)]))
    text = counters.text().decode().splitlines()
    assert 'lockstep_requests_total{status="200"} 4.0' in text
    assert 'lockstep_request_seconds_bucket{le="0.005"} 1.0' in text and 'lockstep_request_seconds_bucket{le="+Inf"} 4.0' in text
    counters.add("a", "7", ReplicaCounts(rows_predicted=12_345_678))
    assert 'lockstep_rows_total{outcome="predicted"} 1.2345678e+07\n' in counters.text().decode(), "every digit counts for a rate"
    assert 'lockstep_model_replicas{version="7"} 2.0' in text and "# TYPE lockstep_request_seconds histogram" in text


def test_requests_that_arrive_while_a_batch_is_computed_are_the_next_one_up_to_its_rows() -> None:
    batches: list[list[list[int]]] = []

    async def double(requests: Sequence[list[int]]) -> list[list[int]]:
        batches.append([list(rows) for rows in requests])
        await asyncio.sleep(0)
        return [[2 * row for row in rows] for rows in requests]

    async def answers() -> list[list[int]]:
        gathered = RequestBatches(double, max_rows=4)
        return await asyncio.gather(*(gathered.answer(rows) for rows in ([1], [2, 3], [], [4, 5], [6, 7, 8, 9, 10], [11])))

    assert asyncio.run(answers()) == [[2], [4, 6], [], [8, 10], [12, 14, 16, 18, 20], [22]]
    assert batches == [[[1], [2, 3], []], [[4, 5]], [[6, 7, 8, 9, 10]], [[11]]]


def test_a_batch_that_fails_fails_its_own_requests_only() -> None:
    async def fail_on_zero(requests: Sequence[list[int]]) -> list[list[int]]:
        await asyncio.sleep(0)
        if [0] in requests:
            raise ValueError("a zero")
        return list(requests)

    async def answers() -> list[list[int] | BaseException]:
        gathered = RequestBatches(fail_on_zero, max_rows=2)
        return await asyncio.gather(*(gathered.answer(rows) for rows in ([0], [1], [2], [3])), return_exceptions=True)

    zero, first, *later = asyncio.run(answers())
    assert isinstance(zero, ValueError) and isinstance(first, ValueError) and later == [[2], [3]]


def test_a_request_whose_client_is_gone_is_not_computed() -> None:
    computed: list[list[int]] = []

    async def record_requests(requests: Sequence[list[int]]) -> list[list[int]]:
        computed.extend(requests)
        await asyncio.sleep(0.01)
        return list(requests)

    async def cancel_second() -> list[int]:
        gathered = RequestBatches(record_requests, max_rows=1)
        first, second, last = (asyncio.create_task(gathered.answer([number])) for number in (1, 2, 3))
        await asyncio.sleep(0)
        second.cancel()
        await first
        return await last

    assert asyncio.run(cancel_second()) == [3] and computed == [[1], [3]]


def test_one_number_that_json_lacks_costs_no_other_row_its_answer() -> None:
    """A forecast or an image is a list; so are its parts."""
    predicted = pd.DataFrame({"forecast": [[1.0, float("nan")], np.array([[np.inf], [2.0]]), None], "prediction": [0.5, -np.inf, np.nan]})
    assert json.loads(json.dumps(_json_rows(predicted), allow_nan=False)) == [
        {"forecast": [1.0, None], "prediction": 0.5},
        {"forecast": [[None], [2.0]], "prediction": None},
        {"forecast": None, "prediction": None},
    ]
