"""Settings of transformers of Hugging Face: the encoder, and the task. Imports no transformers."""

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, ClassVar, Literal

from pydantic import PositiveInt, model_validator

from pipelines.config.features.base import EncoderSettings
from pipelines.config.paths import absolute_path, home, missing_file, read_from_folder
from pipelines.config.tasks.base import TaskSettings
from pipelines.config.train.base import Training
from pipelines.config.tuning import Dimension, around

CONFIG = "config.json"
_ELSEWHERE = ("_name_or_path", "architectures", "auto_map", "dtype", "torch_dtype", "transformers_version")
"""Entries of a config.json about the file's own past, or its weights' precision, which decide no network of this task."""


class TokenizerSettings(EncoderSettings):
    """The tokens of a text by the tokenizer of a pretrained model, as int32 of a fixed length: the tokenizer's numbers plus 1, since 0 is
    padding. Tokens that it adds, such as [CLS] and [SEP], are in place in a longer text too, which loses its last words. NULL, and a text
    without a token, is quarantined.

    A dataset version holds the tokenizer itself, and so does the served model: neither needs the folder again.
    """

    implementation: ClassVar[str] = "pipelines.applications.huggingface.encoders:FolderTokenizer"
    kind_of_values: ClassVar[str] = "sequence"
    excluded_from_identity: ClassVar[frozenset[str]] = frozenset({"folder"})
    encodes_with: ClassVar[tuple[str, ...]] = ("tokenizers",)
    file: ClassVar[str] = "tokenizer.json"
    encoder: Literal["tokenizer"] = "tokenizer"
    folder: str = ""
    """Folder with tokenizer.json, as Hugging Face's libraries write it, on a disk of the machine that starts ETL. Where it is does not
    matter for the identity of a dataset, the `digest` does."""
    length: PositiveInt
    """Number of tokens, added ones included; longer texts are truncated, shorter ones padded."""
    digest: str = ""
    """SHA-256 of tokenizer.json, filled in where there is one; another file is refused."""

    @model_validator(mode="before")
    @classmethod
    def _digest_is_that_of_the_file(cls, values: Any) -> Any:
        """Note the digest, unless the settings are recorded ones, which have it. Whoever only uses a model needs no file."""
        if not isinstance(values, dict) or values.get("digest"):
            return values
        folder = values.get("folder")
        if not isinstance(folder, str) or not folder:
            raise ValueError("folder is not set; name the folder with the tokenizer.json of the model")
        folder = absolute_path(folder, home())
        content = read_from_folder(folder, cls.file, "folder")
        return {**values, "folder": folder, **({} if content is None else {"digest": sha256(content).hexdigest()})}

    @property
    def fault(self) -> str:
        return "" if self.digest else missing_file(self.folder, self.file, "folder")


class HuggingFaceSettings(TaskSettings):
    """A transformer of Hugging Face's library that classifies texts, over one column of the encoder `tokenizer`. It is built as the
    config.json of a folder says, with as many outputs as the target needs, and starts from the weights in the folder."""

    implementation: ClassVar[str] = "pipelines.applications.huggingface.task:HuggingFace"
    distributions: ClassVar[tuple[str, ...]] = ("transformers",)
    smooths_labels: ClassVar[bool] = True
    has_average: ClassVar[bool] = True
    train_defaults: ClassVar[Mapping[str, Any]] = {"lr": 2e-5, "epochs": 3, "global_batch": 32}
    kind: Literal["huggingface"] = "huggingface"
    model: str = ""
    """Folder with config.json and model.safetensors, as Hugging Face's `save_pretrained` writes it, on a disk of the machine that starts
    the training. Where it is does not matter for the identity of a run; what is in it does. It is the default of `train.init_from`."""
    architecture: str = ""
    """The folder's config.json, as text; filled in. With it the folder is not read again but for its weights."""

    @property
    def fault(self) -> str:
        return "" if self.architecture else missing_file(self.model, CONFIG, "task.model")

    @property
    def excluded_from_identity(self) -> set[str]:
        return super().excluded_from_identity | {"model"}

    @classmethod
    def defaults_for_training(cls, task: Mapping[str, Any]) -> dict[str, Any]:
        folder = task.get("model")
        if not isinstance(folder, str) or not folder:
            return dict(cls.train_defaults)
        return {**cls.train_defaults, "init_from": {"folder": absolute_path(folder, home()), "strict": False}}

    def search_space(self, train: Training) -> dict[str, Dimension]:
        """As of every network, but with rates nearer to each other: a large one destroys what the weights have learnt."""
        return {**super().search_space(train), "train.lr": around(train.lr, 4)}

    @model_validator(mode="before")
    @classmethod
    def _architecture_is_that_of_the_folder(cls, values: Any) -> Any:
        """Read the folder's config.json, unless the settings are recorded ones, which have it. Who only uses a model needs none."""
        if not isinstance(values, dict) or values.get("architecture"):
            return values
        folder = values.get("model")
        if not isinstance(folder, str) or not folder:
            raise ValueError("model is not set; name the folder of a model with its config.json")
        folder = absolute_path(folder, home())
        return {**values, "model": folder, "architecture": _read_architecture(folder)}


def _read_architecture(folder: str) -> str:
    """The entries of a folder's config.json that decide the network, as JSON; empty if it has no such file. Raises ValueError for one of
    another kind."""
    content = read_from_folder(folder, CONFIG, "model")
    if content is None:
        return ""
    try:
        entries = json.loads(content)
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"model is {folder}, whose {CONFIG} is no JSON: {error}; write the folder again by save_pretrained") from error
    if not isinstance(entries, dict) or not isinstance(entries.get("model_type"), str):
        raise ValueError(f"model is {folder}, whose {CONFIG} names no model_type; name the folder of a model of the transformers library")
    return json.dumps({name: value for name, value in sorted(entries.items()) if name not in _ELSEWHERE})
