"""The task `language`: a network over windows of tokens that predicts each token from the previous ones, and details of it."""

from collections.abc import Mapping, Sequence
from math import log
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torchmetrics import MetricCollection

from pipelines.applications.language.network import (
    GPT,
    LSTM,
    NATS,
    TOKENS,
    OverWindows,
    TokenFrequencies,
    TokenNetwork,
    TokenVocabulary,
    TransformerBlock,
    normalise,
)
from pipelines.applications.language.settings import LanguageSettings as Settings
from pipelines.config import TaskSettings
from pipelines.config.messages.words import name_list
from pipelines.data.versions.schema import END
from pipelines.errors import ConfigError
from pipelines.tasks.base import Task
from pipelines.tasks.data import Batch, Data
from pipelines.tasks.details.base import Columns, Details
from pipelines.tasks.details.parts import SelectedRows
from pipelines.tasks.linear_cross_entropy import Head
from pipelines.tasks.metrics.accumulation import Perplexity, Ratio
from pipelines.tasks.model_parallel import Divisible, LayerPlan, Link, cut_stages
from pipelines.tasks.trivial import TrivialPredictor

_LOGITS_AT_ONCE = 2**25
"""Logits that a served model computes together: 128 MiB, of which a pass holds several copies."""


class Language(Task):
    settings: Settings
    monitor = "nats_per_token", "min"
    minimised = "nats_per_token"

    def __init__(self, settings: TaskSettings, data: Data) -> None:
        """Raises ConfigError if the dataset is not one packed column, or if its tokens are not as `cutoffs` needs them."""
        super().__init__(settings, data)
        if not data.tokens:
            columns_text = name_list([column.name for column in data.columns])
            raise ConfigError(
                f"task.kind is language, which takes one feature encoded by bytes, characters, bpe or words, but got {columns_text}"
            )
        if self.settings.cutoffs and not self.data.has_words:
            raise ConfigError(
                f"task.cutoffs is {list(self.settings.cutoffs)}, but {data.columns[0].name} has tokens that are not numbered by frequency; "
                "encode it by words, or remove cutoffs"
            )

    def check(self) -> None:
        cutoffs, count = self.settings.cutoffs, len(self.data.tokens)
        if cutoffs and cutoffs[-1] >= count:
            raise ConfigError(f"task.cutoffs is {list(cutoffs)}, but the dataset has {count:,} tokens; each must be less")

    @property
    def rows_at_once(self) -> int:
        return max(1, _LOGITS_AT_ONCE // ((self.data.columns[0].shape[0] - 1) * len(self.data.tokens)))

    def model(self) -> nn.Module:
        column, settings = self.data.columns[0], self.settings
        vocabulary = TokenVocabulary(len(self.data.tokens), settings.tied, settings.cutoffs, settings.chunk_tokens)
        context = column.shape[0] - 1
        network: TokenNetwork
        if settings.network == "lstm":
            network = LSTM(vocabulary, context, settings.layers, settings.width, settings.dropout)
        else:
            network = GPT(vocabulary, context, settings.layers, settings.heads, settings.width, settings.dropout)
        return OverWindows(column.name, network, self._extent_per_token())

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        output = model(batch)
        return output[:, NATS].sum(), output[:, TOKENS].sum()

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        network = _gpt(model)
        return list(network.blocks) if network else ()

    def stages(self, model: nn.Module, count: int) -> Sequence[nn.Module]:
        """As `Task.stages`; empty if the first and the last one would share weights."""
        network = _gpt(model)
        if network is None or not isinstance(model, OverWindows) or network.embedding is None or network.head is None:
            return ()
        first = Link(lambda hidden, batch: network.embed(model.inputs(batch)), (network.embedding, network.dropout))
        last = Link(lambda hidden, batch: model.likelihood(normalise(hidden), batch), (network.head,))
        return cut_stages(count, first, [_link(network, block) for block in network.blocks], last)

    def parallel_plan(self, model: nn.Module) -> Mapping[str, LayerPlan]:
        """Workers divide attention by heads, perceptrons by hidden units, and the vocabulary, whose logits are never gathered."""
        network = _gpt(model)
        if network is None or not isinstance(network.head, Head):
            return {}
        heads, block = self.settings.heads, "network.blocks.*"
        return {
            "network.embedding": LayerPlan("rows"),
            f"{block}.attention.qkv": LayerPlan("columns", heads, "heads"),
            f"{block}.attention.outputs": LayerPlan("rows", heads, "heads"),
            f"{block}.wide": LayerPlan("columns"),
            f"{block}.narrow": LayerPlan("rows"),
            "network.head": LayerPlan("logits"),
        }

    def divisible_tokens(self, model: nn.Module) -> Divisible | None:
        network = _gpt(model)
        if network is None or not isinstance(model, OverWindows):
            return None
        attentions = [cast(TransformerBlock, block).attention for block in network.blocks]
        return Divisible(network.context, (model, network, *attentions))

    def metrics(self) -> MetricCollection:
        per_byte = {} if self.data.has_words else {"bits_per_byte": Ratio("no byte to predict")}
        return MetricCollection({"nats_per_token": Ratio(), "perplexity": Perplexity(), **per_byte}, compute_groups=False)

    def update(self, metrics: MetricCollection, output: Tensor, batch: Batch) -> None:
        nats, tokens, extent = output.detach().cpu().double().sum(dim=0)
        for name in ("nats_per_token", "perplexity"):
            metrics[name].update(nats, tokens)
        if not self.data.has_words:
            metrics["bits_per_byte"].update(nats / log(2), extent)

    def trivial_predictors(self) -> Sequence[TrivialPredictor]:
        return [TokenFrequencies(self.data.columns[0].name, self._extent_per_token())]

    def details(self) -> Details:
        return WindowDetails(self.settings, self.data)

    def prediction_form(self) -> dict[str, Any]:
        return {"form": f"pipelines.applications.language.answers:{'word_likelihoods' if self.data.has_words else 'likelihoods'}"}

    @property
    def samples(self) -> bool:
        return self.settings.sample_tokens > 0

    def sample(self, model: nn.Module, epoch: int) -> str:
        """Text that the model generates from the start of a document, with the epoch as the seed."""
        assert isinstance(model, OverWindows)
        if not self.samples:
            return ""
        network = model.network
        generator = torch.Generator().manual_seed(epoch)
        generated = torch.tensor([[END]], device=next(network.parameters()).device)
        for _ in range(self.settings.sample_tokens):
            hidden = network.hidden(generated[:, -network.context :])
            logits = network.logits(hidden[:, -1:])[0, 0].float().cpu()
            next_token = torch.multinomial((logits / self.settings.temperature).softmax(0), 1, generator=generator)
            generated = torch.cat([generated, next_token[None].to(generated.device)], dim=1)
        text = b"".join(self.data.tokens[number] or b"\n\n" for number in generated[0, 1:].tolist())
        return text.decode(errors="replace")

    def _extent_per_token(self) -> list[int]:
        if self.data.has_words:
            return [int(number == self.data.unknown_word) for number in range(len(self.data.tokens))]
        return [len(token) for token in self.data.tokens]


def _gpt(model: nn.Module) -> GPT | None:
    """The model's GPT; None if its network is another."""
    return model.network if isinstance(model, OverWindows) and isinstance(model.network, GPT) else None


def _link(network: GPT, block: nn.Module) -> Link:
    return Link(lambda hidden, batch: block(hidden, *network.turns(hidden.shape[1], hidden.device)), (block,))


class WindowDetails(Details):
    """How the likelihood differs between windows, and the most surprising ones as text."""

    kind = "windows"

    def __init__(self, settings: TaskSettings, data: Data) -> None:
        super().__init__(settings, data)
        self.worst = SelectedRows(8)

    def update(self, output: Tensor, batch: Batch) -> None:
        nats, tokens, extent = output.double().numpy().T
        with np.errstate(divide="ignore", invalid="ignore"):
            per_token = nats / tokens
            figure = {"unknown": extent} if self.data.has_words else {"bits_per_byte": nats / log(2) / extent}
        self.sums.add("rows", np.array(len(nats)))
        self._offer(self.outcomes, batch, {"nats": nats, "tokens": tokens, "unknown" if self.data.has_words else "bytes": extent})
        self._offer(self.sample, batch, {"nats_per_token": per_token, **figure})
        self._offer_worst(np.where(tokens > 0, per_token, 0.0), batch, figure)

    def tables(self) -> dict[str, Columns]:
        return {"sample": {"row": self.sample.rows.tolist(), **{name: values.tolist() for name, values in self.sample.columns.items()}}}

    def summary(self) -> dict[str, Any]:
        return {"rows": int(self.sums.arrays.get("rows", 0))}
