"""The models that the GPU benchmark trains, each with its rows and the ways in which it is trained."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.train.cases import Case, case_config, write_version
from pipelines.config import Config, load
from pipelines.data.versions.manifest import FittedEncoder
from pipelines.data.versions.plain import commit_arrays
from pipelines.data.versions.schema import TensorColumn, schema_to_text

CONF = Path(__file__).parents[2] / "conf"
ROW_GROUP_BYTES = 2**20
"""Small, so that a small dataset has many: a shard decodes each row group that it has rows of."""
CACHE_BYTES = 2**30


@dataclass(frozen=True)
class Variant:
    """Settings with which a model is trained."""

    precision: str
    compiled: bool = False
    cached: bool = True
    """Whether rows are kept on the GPU if they fit, as by default; else they are read and copied in every epoch."""

    def apply(self, config: Config, workers: int) -> Config:
        changes = {
            "precision": self.precision,
            "compile": self.compiled,
            "workers": workers,
            "cpus_per_worker": max(1, (os.cpu_count() or 1) // workers),
            "cache_bytes": CACHE_BYTES if self.cached else 0,
        }
        return config.model_copy(update={"train": config.train.model_copy(update=changes)})


@dataclass(frozen=True)
class Model:
    config: Callable[[Path], Config]
    """Of a training whose dataset, runs and MLflow lie in the folder."""
    write: Callable[[Config], object]
    """Writes the dataset's version."""
    warm_up: int
    """Steps that are not measured."""
    steps: int
    variants: tuple[Variant, ...]


def _case_model(case: Case, variants: tuple[Variant, ...]) -> Model:
    write = partial(write_version, case, row_group_bytes=ROW_GROUP_BYTES)
    return Model(partial(case_config, case), write, case.warm_up, case.steps, variants)


def _load_conf(name: str, steps: int, changes: dict[str, object], folder: Path) -> Config:
    """A config of conf/, on the folder's dataset."""
    return load(
        CONF / f"{name}.yaml",
        {
            "dataset.path": f"{folder}/data",
            "train.storage": f"{folder}/runs",
            "train.max_steps": steps,
            "train.epochs": 1_000,
            "tracking.uri": f"sqlite:///{folder}/mlflow.db",
            **changes,
        },
    )


def _gpt2_config(steps: int, changes: dict[str, object], folder: Path) -> Config:
    """conf/gpt2.yaml, with tokens that are characters: those need no text to learn merges from."""
    return _load_conf("gpt2", steps, {"dataset.features": {"text": {"encoder": "characters", "length": 1024}}, **changes}, folder)


def _write_tokens(windows: int, vocabulary: int, config: Config) -> None:
    """Random windows of random tokens, drawn as often as words are: the n-th one 1 / n as often as the first."""
    settings = config.dataset.encoders["text"]
    length: int = settings.length  # type: ignore[attr-defined]
    odds = 1 / np.arange(1, vocabulary - 1)
    rows = np.random.default_rng(0).choice(np.arange(2, vocabulary, dtype=np.uint16), (windows, length + 1), p=odds / odds.sum())
    column = TensorColumn(name="text", dtype="uint16", shape=(length + 1,), cardinality=vocabulary)
    state = {"characters": "".join(map(chr, range(0x4E00, 0x4E00 + vocabulary - 2)))}
    encoder = FittedEncoder(feature=settings.model_dump(mode="json"), inputs=("text",), state=state, column=column)
    raw = schema_to_text(pa.schema([("text", pa.string())]))
    commit_arrays(
        config.dataset.path, {"train": [{"text": rows}]}, {"text": encoder}, ROW_GROUP_BYTES, identity=config.data_identity, raw_schema=raw
    )


def _write_masks(count: int, config: Config) -> None:
    """Random images or volumes, with a random class for each pixel or voxel."""
    random, rows, encoders = np.random.default_rng(0), {}, {}
    for name, settings in config.dataset.encoders.items():
        shape: tuple[int, ...] = tuple(settings.shape)  # type: ignore[attr-defined]
        classes: int | None = None
        if settings.encoder == "volume":
            shape = (1, *shape)
            rows[name] = random.standard_normal((count, *shape), np.float32).astype(settings.dtype)  # type: ignore[attr-defined]
        else:
            classes = len(settings.classes) if settings.encoder == "mask" else None  # type: ignore[attr-defined]
            rows[name] = random.integers(0, classes or 256, (count, *shape), np.uint8)
        column = TensorColumn(
            name=name, dtype=str(rows[name].dtype), shape=shape, role="target" if classes else "feature", cardinality=classes
        )
        encoders[name] = FittedEncoder(feature=settings.model_dump(mode="json"), inputs=(name,), state={}, column=column)
    raw = schema_to_text(pa.schema([(name, pa.binary()) for name in rows]))
    commit_arrays(config.dataset.path, {"train": [rows]}, encoders, ROW_GROUP_BYTES, identity=config.data_identity, raw_schema=raw)


PLAIN, HALF, COMPILED, SCALED = Variant("fp32"), Variant("bf16"), Variant("bf16", compiled=True), Variant("fp16")
STREAMED = Variant("bf16", cached=False)
IMAGE, SMALL_IMAGE = {"encoder": "image", "shape": [3, 224, 224]}, {"encoder": "image", "shape": [3, 8, 8]}
RESNET50 = Case({"kind": "vision", "network": "resnet50"}, IMAGE, 1, (3, 224, 224), "uint8", 4_096, 256, 10, 40)
RESNET18 = Case({"kind": "vision", "network": "resnet18"}, SMALL_IMAGE, 1, (3, 8, 8), "uint8", 64, 8, 1, 2)
PERCEPTRON = Case(
    {"kind": "tabular", "hidden": [5_760] * 4}, {"encoder": "identity"}, 100, (), "float32", 200_000, 4_096, 60, 60
)  # of 100 M parameters; the first epoch, of 48 steps, fills the cache
SMALL_PERCEPTRON = Case({"kind": "tabular", "hidden": [32]}, {"encoder": "identity"}, 8, (), "float32", 2_048, 64, 2, 20)
SMALL_GPT: dict[str, object] = {
    "dataset.features": {"text": {"encoder": "characters", "length": 128}},
    "task.layers": 1,
    "task.heads": 2,
    "task.width": 16,
    "train.use_gpu": False,
    "train.strategy": "ddp",
    "train.global_batch": 16,
    "train.grad_accum_steps": 2,
}
U_NET: dict[str, object] = {"train.use_gpu": True, "train.global_batch": 16}
SMALL_U_NET: dict[str, object] = {
    "dataset.features.image.shape": [16, 16, 16],
    "dataset.target.label.shape": [16, 16, 16],
    "task.patch": [8, 8, 8],
    "task.width": 4,
    "task.depth": 2,
    "train.use_gpu": False,
    "train.global_batch": 4,
}
LARGE = {
    "ResNet-50": _case_model(RESNET50, (PLAIN, HALF, STREAMED, COMPILED, SCALED)),
    "MLP, 100 M parameters": _case_model(PERCEPTRON, (PLAIN, HALF, STREAMED, COMPILED, SCALED)),
    "conf/gpt2.yaml": Model(partial(_gpt2_config, 8, {}), partial(_write_tokens, 4_096, 25_600), 2, 6, (HALF, COMPILED)),
    "conf/membrane.yaml": Model(partial(_load_conf, "membrane", 50, U_NET), partial(_write_masks, 512), 10, 40, (PLAIN, HALF, COMPILED)),
    "conf/hippocampus.yaml": Model(
        partial(_load_conf, "hippocampus", 50, U_NET), partial(_write_masks, 512), 10, 40, (PLAIN, HALF, COMPILED)
    ),
}
SMALL = {
    "ResNet-18": _case_model(RESNET18, (PLAIN, HALF, STREAMED)),  # a processor takes seconds for a step in fp16
    "GPT": Model(partial(_gpt2_config, 4, SMALL_GPT), partial(_write_tokens, 64, 50), 1, 3, (PLAIN, HALF)),
    "U-Net": Model(partial(_load_conf, "hippocampus", 4, SMALL_U_NET), partial(_write_masks, 8), 1, 2, (PLAIN, HALF)),
    "MLP": _case_model(SMALL_PERCEPTRON, (PLAIN, HALF, STREAMED, SCALED)),
}


def choose(is_small: bool, parts: Sequence[str]) -> dict[str, Model]:
    """The models whose name contains one of the parts; all, if there are none. Raises ValueError if that leaves none."""
    models = SMALL if is_small else LARGE
    chosen = {name: model for name, model in models.items() if not parts or any(part in name for part in parts)}
    if not chosen:
        raise ValueError(f"no model is called like {' or '.join(parts)}; there are {', '.join(models)}")
    return chosen
