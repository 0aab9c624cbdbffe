"""The task `language`: a GPT over windows of tokens that predicts each token from the previous ones.

A window has one token more than it predicts. Token 0 ends a document; a 0 after a 0 is padding and is not predicted.
"""

from collections.abc import Mapping, Sequence
from math import log
from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import MetricCollection

from pipelines.config import TaskSettings
from pipelines.config.messages.did_you_mean import name_list
from pipelines.config.tasks.task import LanguageSettings as Settings
from pipelines.data.versions.schema import END
from pipelines.errors import ConfigError
from pipelines.tasks.base import Batch, Data, Task
from pipelines.tasks.constants import Constant
from pipelines.tasks.details import Details, WindowDetails
from pipelines.tasks.metrics.accumulation import Perplexity, Ratio
from pipelines.tasks.metrics.table import METRICS
from pipelines.tasks.sequences.gpt import GPT
from pipelines.tasks.stages import Link, cut_stages
from pipelines.tasks.tensor_parallel_plan import LayerPlan
from pipelines.tasks.tokens import Divisible, Tokens
from pipelines.tasks.trivial import Frequencies, TrivialPredictor

NATS, TOKENS, BYTES = range(3)
"""Output of the model for a window: negative log-likelihood in nats, number of predicted tokens, and bytes of their text."""


class Language(Task):
    settings: Settings
    monitor = METRICS["nats_per_token"].monitor
    minimised = "nats_per_token"

    def __init__(self, settings: TaskSettings, data: Data) -> None:
        """Raises ConfigError if the dataset is not one packed column."""
        super().__init__(settings, data)
        if not data.tokens:
            columns_text = name_list([column.name for column in data.columns])
            raise ConfigError(f"task.kind is language, which takes one feature encoded by bytes, characters or bpe, but got {columns_text}")

    def model(self) -> nn.Module:
        column, settings = self.data.columns[0], self.settings
        network = GPT(len(self.data.tokens), column.shape[0] - 1, settings.layers, settings.heads, settings.width, settings.dropout)
        return OverWindows(column.name, network, [len(token) for token in self.data.tokens])

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        output = model(batch)
        return output[:, NATS].sum(), output[:, TOKENS].sum()

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        return list(model.network.blocks) if isinstance(model, OverWindows) else ()

    def stages(self, model: nn.Module, count: int) -> Sequence[nn.Module]:
        if not isinstance(model, OverWindows):
            return ()
        network = model.network
        first = Link(lambda hidden, batch: network.embed(model.inputs(batch)), (network.embedding, network.dropout))
        last = Link(lambda hidden, batch: model.likelihood(network.logits(hidden), batch), (network.head,))
        return cut_stages(count, first, [_link(network, block) for block in network.blocks], last)

    def parallel_plan(self, model: nn.Module) -> Mapping[str, LayerPlan]:
        """Workers divide attention by heads, perceptrons by hidden units, and the vocabulary, whose logits are never gathered."""
        if not isinstance(model, OverWindows):
            return {}
        heads, block = self.settings.heads, "network.blocks.*"
        return {
            "network.embedding": LayerPlan("rows"),
            f"{block}.attention.qkv": LayerPlan("columns", heads, "heads"),
            f"{block}.attention.outputs": LayerPlan("rows", heads, "heads"),
            f"{block}.wide": LayerPlan("columns"),
            f"{block}.narrow": LayerPlan("rows"),
            "network.head": LayerPlan("logits"),
            "cross_entropy": LayerPlan("whole"),
            "logits": LayerPlan("whole"),
        }

    def divisible_tokens(self, model: nn.Module) -> Divisible | None:
        if not isinstance(model, OverWindows):
            return None
        network = model.network
        return Divisible(network.context, (model, network, *network.attentions()))

    def metrics(self) -> MetricCollection:
        return MetricCollection(
            {"nats_per_token": Ratio(), "perplexity": Perplexity(), "bits_per_byte": Ratio("no byte to predict")},
            compute_groups=False,
        )

    def update(self, metrics: MetricCollection, output: Tensor, batch: Batch) -> None:
        nats, tokens, bytes_ = output.detach().cpu().double().sum(dim=0)
        for name in ("nats_per_token", "perplexity"):
            metrics[name].update(nats, tokens)
        metrics["bits_per_byte"].update(nats / log(2), bytes_)

    def trivial_predictors(self) -> Sequence[TrivialPredictor]:
        return [TokenFrequencies(self.data.columns[0].name, [len(token) for token in self.data.tokens])]

    def details(self) -> Details:
        return WindowDetails(self.settings, self.data)

    def predict(self, output: Tensor) -> dict[str, Sequence]:
        """The likelihood of each text: nats per token and in total, bits per byte, and tokens, including the end of the text.

        A text is evaluated from its start. Windows of an evaluation, in contrast, may start inside a text and contain several.
        """
        nats, tokens, bytes_ = output.detach().cpu().double().unbind(dim=1)
        return {
            "nats_per_token": (nats / tokens).tolist(),
            "bits_per_byte": (nats / log(2) / bytes_).tolist(),
            "nats": nats.tolist(),
            "tokens": tokens.tolist(),
        }

    def prediction_form(self) -> dict[str, Any]:
        return {"form": "likelihood"}

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
        generated = torch.tensor([[END]], device=network.head.weight.device)
        for _ in range(self.settings.sample_tokens):
            logits = model.logits(network(generated[:, -network.context :]))[0, -1].float().cpu()
            next_token = torch.multinomial((logits / self.settings.temperature).softmax(0), 1, generator=generator)
            generated = torch.cat([generated, next_token[None].to(generated.device)], dim=1)
        text = b"".join(self.data.tokens[number] or b"\n\n" for number in generated[0, 1:].tolist())
        return text.decode(errors="replace")


class TokenFrequencies(Frequencies):
    """Predicts every token by how often it occurs in training, whatever came before: nats, tokens and bytes of each window."""

    def __init__(self, column: str, bytes_per_token: Sequence[int]) -> None:
        super().__init__("frequencies of tokens", column, len(bytes_per_token))
        self._bytes_per_token = torch.tensor(bytes_per_token, dtype=torch.float64)

    def fit(self, batch: Batch) -> None:
        windows = batch[self._column].long()
        targets = windows[:, 1:]
        self.counts += torch.bincount(targets[_prediction_mask(windows)], minlength=len(self.counts)).numpy()

    def output(self, batch: Batch) -> Tensor:
        windows = batch[self._column].cpu().long()
        targets, predicted = windows[:, 1:], _prediction_mask(windows).double()
        nats = -self.logarithms()[targets] * predicted
        return torch.stack([nats.sum(1), predicted.sum(1), self._bytes_per_token[targets].sum(1)], dim=1)


def _prediction_mask(windows: Tensor) -> Tensor:
    """Which tokens of windows are predicted, bool of shape (rows, tokens − 1): all but padding."""
    return (windows[:, :-1] != END) | (windows[:, 1:] != END)


class OverWindows(nn.Module):
    """Applies a GPT to the windows of a batch: nats, tokens and bytes of each, float32 of shape (rows, 3)."""

    def __init__(self, column: str, network: GPT, bytes_per_token: Sequence[int]) -> None:
        super().__init__()
        self.column = column
        self.network = network
        self.tokens = Tokens()
        self.cross_entropy = nn.CrossEntropyLoss(reduction="none")
        self.logits = nn.Identity()
        """The logits of the network; workers that divide the vocabulary gather them here."""
        self._bytes_per_token = Constant(torch.tensor(bytes_per_token, dtype=torch.float32))

    def forward(self, batch: Batch) -> Tensor:
        return self.likelihood(self.network(self.inputs(batch)), batch)

    def inputs(self, batch: Batch) -> Tensor:
        """The worker's tokens from which the network predicts the next ones."""
        return self.tokens.local(batch[self.column].long()[:, :-1])

    def likelihood(self, logits: Tensor, batch: Batch) -> Tensor:
        """The output, from the network's logits."""
        inputs, targets = self.inputs(batch), self.tokens.local(batch[self.column].long()[:, 1:])
        nats = self.cross_entropy(logits.float().flatten(0, 1), targets.flatten()).view(targets.shape)
        predicted = ((inputs != END) | (targets != END)).float()
        bytes_ = self._bytes_per_token.to(targets.device)[targets]
        return self.tokens.total(torch.stack([(nats * predicted).sum(1), predicted.sum(1), bytes_.sum(1)], dim=1))


def _link(network: GPT, block: nn.Module) -> Link:
    return Link(lambda hidden, batch: block(hidden, *network.turns(hidden.shape[1], hidden.device)), (block,))
