"""The task `huggingface`: a transformer of Hugging Face's library over the tokens of a text.

The library makes the network from the config.json in the task's settings, and is asked for nothing else: no weights, no tokenizer, no code
of a model, nothing from the network.
"""

import json
import os
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from pipelines.applications.huggingface.settings import CONFIG
from pipelines.applications.huggingface.settings import HuggingFaceSettings as Settings
from pipelines.config import TaskSettings
from pipelines.config.messages.words import name_list
from pipelines.data.versions.schema import FREE, TensorColumn
from pipelines.errors import ConfigError
from pipelines.tasks.base import Batch, Data
from pipelines.tasks.supervised import Supervised

MISSING = "it needs transformers, which is not installed; pip install 'lockstep-pipelines[huggingface]'"
_OLD_ENDINGS = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
"""Of the first published checkpoints, which the library renames as well."""


class HuggingFace(Supervised):
    settings: Settings

    def __init__(self, settings: TaskSettings, data: Data) -> None:
        """Raises ConfigError if the features are not one column of tokens, if there is no config.json, if the library cannot make the
        network, or if it has fewer tokens or positions than the column."""
        super().__init__(settings, data)
        columns = data.features
        if len(columns) != 1 or len(columns[0].shape) != 1 or columns[0].cardinality is None:
            columns_text = name_list([f"{column.name} {column.shape}" for column in columns])
            raise ConfigError(
                f"task.kind is huggingface, which takes one feature, a text with the encoder tokenizer, but got "
                f"{columns_text}; give dataset.features that one alone"
            )
        if settings.fault:
            raise ConfigError(settings.fault)
        self.column = columns[0]
        vocabulary, positions = _sizes(self.settings.architecture)
        length, tokens = self.column.shape[0], (self.column.cardinality or 0) - 1
        if positions is not None and length > positions:
            raise ConfigError(
                f"{self.column.name} has a length of {length} tokens, and the network of task.model has {positions} positions; set its "
                f"length to {positions} or less"
            )
        if vocabulary is not None and tokens > vocabulary:
            raise ConfigError(
                f"{self.column.name} has {tokens} different tokens, and the network of task.model has vectors of {vocabulary}; set "
                "its folder to that of task.model, whose tokenizer.json fits"
            )

    def model(self) -> nn.Module:
        return self._over_tokens()

    def check(self) -> None:
        """Call a network of one layer with a full row and with one that is nearly all padding."""
        network = self._over_tokens(layers=1)
        tokens = torch.ones((2, *self.column.shape), dtype=torch.int32)
        tokens[1, 1:] = FREE
        try:
            with torch.random.fork_rng(devices=[]), torch.no_grad():
                shape = tuple(network.eval()({self.column.name: tokens}).shape)
        except Exception as error:  # networks of the library raise anything
            kind, why = json.loads(self.settings.architecture)["model_type"], " ".join(str(error).split())
            raise ConfigError(
                f"task.model is a {kind}, which cannot classify rows of tokens and padding: {type(error).__name__}: {why}; "
                "use an encoder such as bert, distilbert or roberta"
            ) from error
        assert shape == (2, self.outputs), shape

    def adopt_names(self, model: nn.Module, names: Collection[str]) -> Mapping[str, str]:
        """As the library reads its checkpoints: with or without the prefix of the network below the head, and with old names of norms."""
        assert isinstance(model, TokenClassifier)
        own_names, prefix = model.state_dict().keys(), getattr(model.network, "base_model_prefix", "")
        adopted_names = {}
        for name in names:
            modern = next((name.removesuffix(old) + new for old, new in _OLD_ENDINGS.items() if name.endswith(old)), name)
            places = (name, f"network.{modern}", f"network.{prefix}.{modern}")
            adopted_names[name] = next((place for place in places if place in own_names), name)
        return adopted_names

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        """The layers of the longest list of layers."""
        lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
        longest: nn.ModuleList = max(lists, key=len, default=nn.ModuleList())
        return list(longest)

    def _over_tokens(self, layers: int | None = None) -> "TokenClassifier":
        """The model; `layers` is for one with fewer than it should have. As for the library, two classes have an output each; this project
        has one for both, their difference."""
        labels = 2 if len(self.target.classes) == 2 and self.outputs == 1 else self.outputs
        # A network that was fine-tuned has the names of its outputs in `id2label`, which count if they are those of the classes.
        label_by_output = json.loads(self.settings.architecture).get("id2label") or {}
        output_of = {str(label).casefold(): int(output) for output, label in label_by_output.items()}
        names = [name.casefold() for name in self.target.classes]
        has_outputs_by_name = sorted(output_of) == sorted(names) and sorted(output_of.values()) == [*range(len(names))]
        places: Sequence[int] = [output_of[name] for name in names] if names and has_outputs_by_name else range(labels)
        return TokenClassifier(self.column, _network(self.settings.architecture, labels, layers), places, labels > self.outputs)


class TokenClassifier(nn.Module):
    """Applies a network of the library to the tokens of a batch."""

    def __init__(self, column: TensorColumn, network: Any, places: Sequence[int], differs: bool) -> None:
        """`places` are the network's outputs in the order of the classes. If it `differs`, the output is the second one minus the first."""
        super().__init__()
        self.column = column.name
        self.network = network
        self._places, self._differs = places, differs
        # Where attention does not look the token does not matter; networks that count their tokens know this one as padding.
        self._padding = network.config.pad_token_id or 0

    def forward(self, batch: Batch) -> Tensor:
        """Output of shape (rows, outputs)."""
        tokens = batch[self.column].long()
        is_token = tokens != FREE
        numbers = torch.where(is_token, tokens - 1, self._padding)
        logits: Tensor = self.network(input_ids=numbers, attention_mask=is_token.long()).logits
        columns = logits.split(1, dim=1)
        if self._differs:
            return columns[self._places[1]] - columns[self._places[0]]
        return torch.cat([columns[place] for place in self._places], dim=1)


def _network(architecture: str, labels: int, layers: int | None = None) -> Any:
    """A new network, initialised from the current random state of torch, in float32. `layers` is for one with fewer than it should have.

    The library is kept off the network, and from writing to the terminal. Raises ConfigError if it is not installed, does not know the
    architecture, or has no such network that classifies texts."""
    if find_spec("transformers") is None:
        raise ConfigError(f"task.kind is huggingface: {MISSING}")
    os.environ["HF_HUB_OFFLINE"] = "1"
    import transformers  # noqa: PLC0415, takes seconds, and only who uses this task has it installed

    library: Any = transformers
    library.logging.set_verbosity_error()
    entries = json.loads(architecture)
    kind = entries.pop("model_type")
    try:
        config = library.AutoConfig.for_model(kind, **entries)
        config.num_labels = labels
        if layers is not None:
            config.num_hidden_layers = layers
        return library.AutoModelForSequenceClassification.from_config(config, dtype=torch.float32, trust_remote_code=False)
    except Exception as error:  # classes of the library raise anything for what a config.json holds
        why = " ".join(str(error).split())
        why = "there is no such network for it" if why.startswith("Unrecognized configuration class") else f"{why[:300]}"
        raise ConfigError(
            f"task.model is a {kind}, of which transformers {library.__version__} makes no network that classifies texts: {why}; name the "
            f"folder of another model, whose {CONFIG} has a model_type such as bert, distilbert or roberta"
        ) from error


@lru_cache(maxsize=8)
def _sizes(architecture: str) -> tuple[int | None, int | None]:
    """How many tokens the network has vectors of, and how many positions; None where it has no table of them."""
    with torch.device("meta"):
        network = _network(architecture, labels=2)
    tables = {name.rpartition(".")[2]: module for name, module in network.named_modules() if isinstance(module, nn.Embedding)}
    words = network.get_input_embeddings()
    positions = tables.get("position_embeddings")
    count = getattr(network.config, "max_position_embeddings", None) if positions is None else positions.num_embeddings
    if positions is not None and positions.padding_idx is not None:  # as RoBERTa's, whose first position comes behind that of padding
        count = positions.num_embeddings - positions.padding_idx - 1
    return words.num_embeddings if isinstance(words, nn.Embedding) else None, count
