"""Settings of the task `huggingface`. Imports neither torch nor transformers."""

import json
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import model_validator

from pipelines.config.paths import absolute_path, home, missing_file, read_from_folder
from pipelines.config.tasks.base import TaskSettings

CONFIG = "config.json"
_ELSEWHERE = ("_name_or_path", "architectures", "auto_map", "dtype", "torch_dtype", "transformers_version")
"""Entries of a config.json about the file's own past, or its weights' precision, which decide no network of this task."""


class HuggingFaceSettings(TaskSettings):
    """A transformer of Hugging Face's library that classifies texts, over one column of the encoder `tokenizer`. It is built as the
    config.json of a folder says, with as many outputs as the target needs, and starts from the weights in the folder."""

    implementation: ClassVar[str] = "pipelines.tasks.sequences.huggingface:HuggingFace"
    smooths_labels: ClassVar[bool] = True
    train_defaults: ClassVar[Mapping[str, Any]] = {"lr": 2e-5, "epochs": 3, "global_batch": 32}
    kind: Literal["huggingface"] = "huggingface"
    model: str = ""
    """Folder with config.json and model.safetensors, as Hugging Face's `save_pretrained` writes it, on a disk of the machine that starts
    the training. Where it is does not matter for the identity of a run; what is in it does. It is the default of `train.init_from`."""
    architecture: str = ""
    """The folder's config.json, as text; filled in. With it the folder is not read again but for its weights."""

    @property
    def distributions(self) -> tuple[str, ...]:
        return ("transformers",)

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
