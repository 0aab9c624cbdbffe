"""The task `speech`: a convolutional network over the spectrogram of a short recording."""

import torch
from torch import Tensor, nn

from pipelines.applications.speech.settings import SpeechSettings as Settings
from pipelines.config import TaskSettings
from pipelines.config.messages.words import name_list
from pipelines.data.versions.schema import ROW_KEYS, TensorColumn
from pipelines.errors import ConfigError
from pipelines.tasks.augmentation import random_integers
from pipelines.tasks.base import Batch, Data
from pipelines.tasks.supervised import Supervised

_SHIFT, _FRAMES, _MELS = range(3)


class Speech(Supervised):
    settings: Settings

    def __init__(self, settings: TaskSettings, data: Data) -> None:
        """Raises ConfigError if the features are not one spectrogram, or if masks or shifts could cover all of it."""
        super().__init__(settings, data)
        shapes = [column.shape for column in data.features]
        if len(shapes) != 1 or len(shapes[0]) != 2:
            columns_text = name_list([f"{column.name} {column.shape}" for column in data.features])
            raise ConfigError(f"task.kind is speech, which takes one spectrogram, (mels, frames) per row, but got {columns_text}")
        self.spectrogram = data.features[0]
        mels, frames = self.spectrogram.shape
        limits = self.settings
        if limits.masked_mels >= mels or max(limits.masked_frames, limits.shift_frames) >= frames:
            raise ConfigError(
                f"task.masked_mels {limits.masked_mels}, masked_frames {limits.masked_frames}, shift_frames {limits.shift_frames}: "
                f"{self.spectrogram.name} has only {mels} mels and {frames} frames; each setting must be smaller"
            )
        self.draws = bool(limits.shift_frames or limits.masked_frames or limits.masked_mels)

    def model(self) -> nn.Module:
        return OverSpectrogram(self.spectrogram, self.outputs, self.settings)


class OverSpectrogram(nn.Module):
    """3x3 convolutions with 2x2 max pooling, a mean over time, and one linear layer. The mean makes the result independent of when a
    sound occurs, but not of its pitch."""

    def __init__(self, spectrogram: TensorColumn, outputs: int, settings: Settings) -> None:
        super().__init__()
        self.column, self.settings = spectrogram.name, settings
        mels = spectrogram.shape[0]
        layers: list[nn.Module] = []
        for channels, filters in zip((1, *settings.filters), settings.filters, strict=False):
            layers += [nn.Conv2d(channels, filters, 3, padding=1, bias=False), nn.BatchNorm2d(filters), nn.ReLU()]
            layers += [nn.MaxPool2d(2, ceil_mode=True)]
            mels = -(-mels // 2)
        self.layers = nn.Sequential(*layers)
        self.dropout = nn.Dropout(settings.dropout)
        self.output = nn.Linear(settings.filters[-1] * mels, outputs)

    def forward(self, batch: Batch) -> Tensor:
        """Output of shape (rows, outputs). Each spectrogram is standardised to mean 0 and deviation 1, which removes its loudness."""
        raw = batch[self.column]
        centred = raw - raw.mean((1, 2), keepdim=True)
        standard = centred / (centred.square().mean((1, 2), keepdim=True).sqrt() + 1e-3)
        if self.training and ROW_KEYS in batch:
            standard = augment(standard, batch[ROW_KEYS], self.settings)
        return self.output(self.dropout(self.layers(standard.unsqueeze(1)).mean(3).flatten(1)))


def augment(spectrograms: Tensor, keys: Tensor, settings: Settings) -> Tensor:
    """SpecAugment (Park et al. 2019) on spectrograms of shape (rows, mels, frames): a circular shift in time, then one run of frames
    and one run of mels set to the mean, 0.

    The augmentation of a row depends only on its key.
    """
    _, mels, frames = spectrograms.shape
    shift = random_integers(keys, 1, 2 * settings.shift_frames + 1, _SHIFT) - settings.shift_frames
    frame = torch.arange(frames, device=keys.device)
    moved = spectrograms.gather(2, ((frame - shift) % frames).unsqueeze(1).expand_as(spectrograms))
    hidden = _run(keys, settings.masked_frames, frames, _FRAMES).unsqueeze(1) | _run(keys, settings.masked_mels, mels, _MELS).unsqueeze(2)
    return moved.masked_fill(hidden, 0.0)


def _run(keys: Tensor, longest: int, count: int, purpose: int) -> Tensor:
    """A mask with one random run of 0 to `longest` of `count` places, bool of shape (rows, count)."""
    length = random_integers(keys, 1, longest + 1, purpose)
    start = random_integers(keys, 2, count - length + 1, purpose)[:, 1:]
    place = torch.arange(count, device=keys.device)
    return (place >= start) & (place < start + length)
