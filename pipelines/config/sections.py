"""All sections of a config, for one that is built in Python: `api.Config(name=…, source=Source(…), train=Train(epochs=3), …)`."""

from pipelines.config.dataset.dataset import ByColumn, ByFraction, ByTime, Dataset
from pipelines.config.dataset.folds import ByFold, ByTimeFold
from pipelines.config.features import (
    BinarySettings,
    BpeSettings,
    BytesSettings,
    CharactersSettings,
    FourierSettings,
    HashSettings,
    IdentitySettings,
    ImageSettings,
    LabelSettings,
    Log1pSettings,
    LogMelSettings,
    MinMaxSettings,
    NormalQuantileSettings,
    QuantileSettings,
    RobustSettings,
    ScaleSettings,
    SequenceSettings,
    SeriesSettings,
    StandardizeSettings,
    TermsSettings,
    TokenizerSettings,
    VocabularySettings,
    WeightSettings,
    WordsSettings,
)
from pipelines.config.serving import Endpoint, Export, Registry
from pipelines.config.source.source import Source, Table
from pipelines.config.tasks.forecasting import ForecastingSettings
from pipelines.config.tasks.huggingface import HuggingFaceSettings
from pipelines.config.tasks.language import LanguageSettings
from pipelines.config.tasks.tabular import NumberEmbedding, TabularSettings
from pipelines.config.tasks.task import (
    NextItemSettings,
    RecommendationSettings,
    SeriesTaskSettings,
    SpeechSettings,
    TextSettings,
)
from pipelines.config.tasks.vision import VisionSettings
from pipelines.config.tracking import Tracking
from pipelines.config.train.base import BalanceSettings, Checkpoint
from pipelines.config.train.init_from import InitFrom
from pipelines.config.train.lora import Lora
from pipelines.config.train.train import Train

__all__ = [
    "BalanceSettings", "BinarySettings", "BpeSettings", "ByColumn", "ByFold", "ByFraction", "ByTime", "ByTimeFold", "BytesSettings",
    "CharactersSettings", "Checkpoint", "Dataset", "Endpoint", "Export", "ForecastingSettings", "FourierSettings", "HashSettings",
    "HuggingFaceSettings",
    "IdentitySettings", "ImageSettings", "InitFrom", "LabelSettings", "LanguageSettings", "Log1pSettings", "LogMelSettings", "Lora",
    "MinMaxSettings", "NextItemSettings", "NormalQuantileSettings", "NumberEmbedding", "QuantileSettings", "RecommendationSettings",
    "Registry", "RobustSettings", "ScaleSettings", "SequenceSettings", "SeriesSettings", "SeriesTaskSettings", "Source", "SpeechSettings",
    "StandardizeSettings", "Table", "TabularSettings", "TermsSettings", "TextSettings", "TokenizerSettings", "Tracking", "Train",
    "VisionSettings", "VocabularySettings", "WeightSettings", "WordsSettings",
]  # fmt: skip
