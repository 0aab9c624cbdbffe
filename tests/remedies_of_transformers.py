"""Remedies of errors of the encoder `tokenizer` and the task `huggingface`: what raises each, and what it offers instead."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from fitting import fit
from transformer_folders import TEXTS, write_folder, write_network, write_tokenizer

from pipelines.applications.huggingface.settings import HuggingFaceSettings, TokenizerSettings
from pipelines.applications.huggingface.task import HuggingFace
from pipelines.data.versions.schema import TensorColumn
from pipelines.tasks.base import Data

Do = Callable[[Path], Any]
TARGET = TensorColumn(name="y", dtype="uint8", role="target", cardinality=2)


def tokens(count: int = 20, length: int = 12, name: str = "text") -> TensorColumn:
    return TensorColumn(name=name, dtype="int32", shape=(length,), cardinality=count + 1)


def task(*columns: TensorColumn, **network: Any) -> Do:
    """Makes the task over columns, of a folder with this network, and checks it."""

    def check(folder: Path) -> None:
        write_folder(folder, **network)
        HuggingFace(HuggingFaceSettings(model=str(folder)), Data((*columns, TARGET), ("a", "b"))).check()

    return check


def read_config(content: str) -> Do:
    """Reads a folder with this config.json."""

    def read(folder: Path) -> None:
        (folder / "config.json").write_text(content)
        HuggingFaceSettings(model=str(folder))

    return read


def read_written(folder: Path) -> Any:
    write_network(folder, vocab_size=80)
    return HuggingFaceSettings(model=str(folder))


def encode(length: int, write: Do = write_tokenizer, **settings: Any) -> Do:
    """Fits the encoder to the tokenizer of a folder."""

    def fit_encoder(folder: Path) -> None:
        write(folder)
        values = {"encoder": "tokenizer", "folder": str(folder), "length": length, **settings}
        fit({"text": values}, {"y": "binary"}, pa.table({"text": list(TEXTS), "y": [0, 1, 0, 1]}))

    return fit_encoder


def write_nonsense(folder: Path) -> None:
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"type": "nothing"}}))


CASES: dict[str, tuple[Do, tuple[Do, ...]]] = {
    "model is not set; name the folder": (
        lambda folder: HuggingFaceSettings(),
        (read_written,),
    ),
    "name the folder of a model as Hugging Face's save_pretrained writes it": (
        lambda folder: HuggingFace(HuggingFaceSettings(model=str(folder)), Data((tokens(), TARGET), ("a", "b"))),
        (task(tokens()),),
    ),
    "and only a folder on a disk of this machine is read; name": (
        lambda folder: HuggingFaceSettings(model="s3://bucket/bert"),
        (read_written,),
    ),
    "is no JSON: {}; write the folder again by save_pretrained": (read_config("{"), (read_written,)),
    "names no model_type; name the folder of a model": (read_config("[]"), (read_written,)),
    "makes no network that classifies texts": (
        task(tokens(), kind="vit", head="Model", vocab_size=None),
        (task(tokens()), task(tokens(), kind="distilbert"), task(tokens(), kind="roberta")),
    ),
    "which cannot classify rows of tokens and padding": (
        task(tokens(), kind="gpt2", bos_token_id=None, eos_token_id=None, n_embd=16, n_layer=1, n_head=2),
        (task(tokens()), task(tokens(), kind="distilbert"), task(tokens(), kind="roberta")),
    ),
    "which takes one feature, a text with the encoder tokenizer": (
        task(TensorColumn(name="age", dtype="float32")),
        (task(tokens()),),
    ),
    "and the network of task.model has {} positions; set": (task(tokens(length=40)), (task(tokens(length=24)),)),
    "and the network of task.model has vectors of {}; set": (task(tokens(900)), (task(tokens(20)),)),
    "folder is not set; name the folder with the tokenizer.json of the model": (
        lambda folder: TokenizerSettings(length=4),
        (encode(12),),
    ),
    "folder is not set; name the folder with the tokenizer.json of this digest": (
        lambda folder: fit(
            {"text": {"encoder": "tokenizer", "length": 9, "digest": "a"}},
            {"y": "binary"},
            pa.table({"text": list(TEXTS), "y": [0, 1, 0, 1]}),
        ),
        (encode(9),),
    ),
    "restore the file, or remove digest for a new dataset": (encode(12, digest="a" * 64), (encode(12),)),
    "write it again by save_pretrained of a fast one": (encode(12, write_nonsense), (encode(12),)),
    "tokens to each text; raise it to": (encode(2), (encode(3),)),
}
