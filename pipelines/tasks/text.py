"""The task `text`: a convolutional network over the words of a text (Kim 2014, CNN-rand)."""

import torch
from torch import Tensor, nn

from pipelines.config import TaskSettings
from pipelines.config.did_you_mean import name_list
from pipelines.config.task import TextSettings as Settings
from pipelines.data.versions.schema import FREE, TensorColumn
from pipelines.errors import ConfigError
from pipelines.tasks.base import Batch, Data
from pipelines.tasks.supervised import Supervised


class Text(Supervised):
    settings: Settings

    def __init__(self, settings: TaskSettings, data: Data) -> None:
        """Raises ConfigError if the features are not one sequence, or if it is shorter than the widest filter."""
        super().__init__(settings, data)
        columns = data.features
        if len(columns) != 1 or len(columns[0].shape) != 1 or columns[0].cardinality is None:
            columns_text = name_list([f"{column.name} {column.shape}" for column in columns])
            raise ConfigError(f"task.kind is text, which takes one column of words from the encoder sequence, but got {columns_text}")
        self.words = columns[0]
        if max(self.settings.widths) > self.words.shape[0]:
            raise ConfigError(
                f"task.widths is {list(self.settings.widths)}, but {self.words.name} has only {self.words.shape[0]} words; "
                "reduce them, or raise the length of the column"
            )

    def model(self) -> nn.Module:
        return WordWindows(self.words, self.outputs, self.settings)


class WordWindows(nn.Module):
    """Embeds words, applies convolutions of several widths with max pooling over time, and one linear layer."""

    def __init__(self, words: TensorColumn, outputs: int, settings: Settings) -> None:
        super().__init__()
        self.column = words.name
        self.embedding = nn.Embedding(words.cardinality or 0, settings.embedding, padding_idx=FREE)
        with torch.no_grad():
            self.embedding.weight.uniform_(-0.25, 0.25)[0] = 0
        self.filters = nn.ModuleList([nn.Conv1d(settings.embedding, settings.filters, width) for width in settings.widths])
        self.dropout = nn.Dropout(settings.dropout)
        self.output = nn.Linear(settings.filters * len(settings.widths), outputs)

    def forward(self, batch: Batch) -> Tensor:
        """Output of shape (rows, outputs)."""
        embedded = self.embedding(batch[self.column]).transpose(1, 2)
        pooled = [convolution(embedded).relu().amax(2) for convolution in self.filters]
        return self.output(self.dropout(torch.cat(pooled, dim=1)))
