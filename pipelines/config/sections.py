"""All sections of a config, for one that is built in Python: `api.Config(name=…, source=Source(…), train=Train(epochs=3), …)`."""

from pipelines.config.dataset.dataset import ByColumn, ByFraction, ByTime, Dataset
from pipelines.config.dataset.folds import ByFold, ByTimeFold
from pipelines.config.dataset.windows import WindowSettings
from pipelines.config.features import (
    AutoSettings,
    BinarySettings,
    BoxesSettings,
    BpeSettings,
    BytesSettings,
    CharactersSettings,
    CountSettings,
    FourierSettings,
    HashSettings,
    IdentitySettings,
    ImageSettings,
    LabelSettings,
    LabelsSettings,
    Log1pSettings,
    LogMelSettings,
    MaskSettings,
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
    VectorSettings,
    VocabularySettings,
    VolumeSettings,
    WeightSettings,
    WordsSettings,
)
from pipelines.config.serving import Endpoint, Export, Hls4ml, Registry
from pipelines.config.source.simulation import SimulationTable
from pipelines.config.source.source import Source, Table
from pipelines.config.tasks.detection import DetectionSettings
from pipelines.config.tasks.forecasting import ForecastingSettings
from pipelines.config.tasks.huggingface import HuggingFaceSettings
from pipelines.config.tasks.language import LanguageSettings
from pipelines.config.tasks.operator import OperatorSettings
from pipelines.config.tasks.segmentation import SegmentationSettings
from pipelines.config.tasks.tabular import NumberEmbedding, TabularSettings
from pipelines.config.tasks.task import (
    NextItemSettings,
    RecommendationSettings,
    SeriesTaskSettings,
    SpeechSettings,
    TextSettings,
)
from pipelines.config.tasks.trees import TreesSettings
from pipelines.config.tasks.vision import VisionSettings
from pipelines.config.tracking import Tracking
from pipelines.config.train.base import BalanceSettings, Checkpoint
from pipelines.config.train.init_from import InitFrom
from pipelines.config.train.lora import Lora
from pipelines.config.train.profile import Profile
from pipelines.config.train.train import Train

__all__ = [
    "AutoSettings", "BalanceSettings", "BinarySettings", "BoxesSettings", "BpeSettings", "ByColumn", "ByFold", "ByFraction", "ByTime",
    "ByTimeFold", "BytesSettings", "CharactersSettings", "Checkpoint", "CountSettings", "Dataset", "DetectionSettings", "Endpoint",
    "Export", "ForecastingSettings", "FourierSettings", "HashSettings", "Hls4ml", "HuggingFaceSettings", "IdentitySettings",
    "ImageSettings", "InitFrom", "LabelSettings", "LabelsSettings", "LanguageSettings", "Log1pSettings", "LogMelSettings", "Lora",
    "MaskSettings", "MinMaxSettings", "NextItemSettings", "NormalQuantileSettings", "NumberEmbedding", "OperatorSettings", "Profile",
    "QuantileSettings", "RecommendationSettings", "Registry", "RobustSettings", "ScaleSettings", "SegmentationSettings",
    "SequenceSettings", "SeriesSettings", "SeriesTaskSettings", "SimulationTable", "Source", "SpeechSettings", "StandardizeSettings",
    "Table", "TabularSettings", "TermsSettings", "TextSettings", "TokenizerSettings", "Tracking", "Train", "TreesSettings",
    "VectorSettings", "VisionSettings", "VocabularySettings", "VolumeSettings", "WeightSettings", "WindowSettings", "WordsSettings",
]  # fmt: skip
