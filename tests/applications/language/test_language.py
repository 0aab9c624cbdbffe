"""The language model: what it predicts, what it is measured by, and that it learns alike on any number of workers."""

from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from groups import run_group
from torch import Tensor

from pipelines.applications.language.settings import LanguageSettings as Settings
from pipelines.applications.language.task import NATS, TOKENS, Language
from pipelines.config import Config, parse
from pipelines.data.features import restore_encoder
from pipelines.data.features.base import Packer
from pipelines.data.versions.manifest import FittedEncoder
from pipelines.data.versions.plain import commit_arrays
from pipelines.data.versions.schema import TensorColumn
from pipelines.data.versions.versions import open_version
from pipelines.errors import ConfigError
from pipelines.tasks.base import Batch, Data
from pipelines.tasks.bind import build_task
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.loop import Loop
from pipelines.train.run_context import Hooks, Trained
from pipelines.train.strategy import create_strategy
from pipelines.train.workers import WorkerContext

pytestmark = pytest.mark.usefixtures("one_thread")

LENGTH = 16
TEXT = "the cat sat on the mat and the dog sat on the cat. " * 60


def encoder() -> FittedEncoder:
    feature = {"encoder": "characters", "column": "", "length": LENGTH}
    state = {"characters": "".join(sorted(set(TEXT)))}
    column = TensorColumn(name="text", dtype="uint8", shape=(LENGTH + 1,), cardinality=2 + len(state["characters"]))
    return FittedEncoder(feature=feature, inputs=("text",), state=state, column=column)


def text_windows(*texts: str) -> np.ndarray:
    packer = restore_encoder(encoder())
    assert isinstance(packer, Packer)
    return packer.windows([packer.numbers(text) for text in texts])


def task(**settings: Any) -> Language:
    packer = restore_encoder(encoder())
    assert isinstance(packer, Packer)
    is_known = {"kind": "language", "layers": 2, "heads": 2, "width": 32, **settings}
    return Language(Settings.model_validate(is_known), Data((encoder().column,), tokens=packer.tokens))


def text_batch(*texts: str) -> Batch:
    return {"text": torch.from_numpy(text_windows(*texts))}


def test_it_predicts_each_token_from_those_before() -> None:
    model = task().model().eval().network
    torch.manual_seed(0)
    tokens = torch.randint(2, 10, (3, LENGTH))
    changed_tokens = tokens.clone()
    changed_tokens[:, 9] = 2 + (tokens[:, 9] - 1) % 8
    before, after = model(tokens), model(changed_tokens)
    torch.testing.assert_close(before[:, :9], after[:, :9])
    assert ((before[:, 9:] - after[:, 9:]).abs().amax(dim=(0, 2)) > 1e-6).all()


def test_what_fills_a_window_is_not_predicted() -> None:
    learned = task()
    model = learned.model().eval()
    output = model(text_batch("cat", "the dog"))
    assert output[:, TOKENS].tolist() == [12] and output[0, 2] == 10  # 3 + 7 characters, and two ends
    loss, weight = learned.loss(model, text_batch("cat", "the dog"))
    assert weight == 12 and loss.item() == pytest.approx(output[0, NATS].item())
    assert model({"text": torch.zeros(0, LENGTH + 1, dtype=torch.uint8)}).shape == (0, 3)


def test_an_even_guess_costs_the_logarithm_of_the_vocabulary() -> None:
    learned = task()
    model = learned.model()
    torch.nn.init.zeros_(model.network.head.weight)
    metrics, batch = learned.metrics(), text_batch(TEXT[:100])
    learned.update(metrics, model(batch), batch)
    metric_by_name = {name: value.item() for name, value in metrics.compute().items()}
    size = len(set(TEXT)) + 2
    assert metric_by_name["nats_per_token"] == pytest.approx(log(size))
    assert metric_by_name["perplexity"] == pytest.approx(size, rel=1e-5) == pytest.approx(exp(metric_by_name["nats_per_token"]))
    assert metric_by_name["bits_per_byte"] == pytest.approx(log(size) / log(2) * 101 / 100)
    assert learned.predict(model(batch).sum(dim=0, keepdim=True))["tokens"] == [101]


def test_it_writes_the_same_text_for_the_same_epoch() -> None:
    learned = task(sample_tokens=20)
    torch.manual_seed(0)
    model = learned.model().eval()
    state = torch.random.get_rng_state()
    with torch.no_grad():
        texts = [learned.sample(model, epoch) for epoch in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
    assert torch.equal(state, torch.random.get_rng_state()), "training draws what it would have drawn without"
    assert task(sample_tokens=0).sample(model, 1) == ""


def test_columns_that_are_not_packed_are_named() -> None:
    columns = (TensorColumn(name="age", dtype="float32"), TensorColumn(name="left", dtype="uint8", role="target", cardinality=2))
    with pytest.raises(ConfigError, match="takes one feature encoded by bytes, characters, bpe or words, but got age, left"):
        Language(Settings(), Data(columns))


@pytest.mark.parametrize(
    ("dataset", "task", "message"),
    [
        ({"target": {"rich": "binary"}}, {}, "text is packed into windows, which are not rows of the query; it must be the only column"),
        ({"features": {"text": {"encoder": "bpe", "length": 8}, "age": "identity"}}, {}, "text is packed into windows"),
        ({"features": {"text": {"encoder": "bpe", "length": 8, "vocabulary": 100}}}, {}, "must be at least 258"),
        ({"features": {"text": "bytes"}}, {}, "length: is missing"),
        ({}, {"width": 100, "heads": 8}, "width is 100; with 8 heads it must be a multiple of 16, such as 96"),
        ({}, {"class_weights": "balanced"}, "must be none"),
    ],
)
def test_settings_that_cannot_be(dataset: dict[str, Any], task: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(pipeline(dataset, task), "x.yaml")


def pipeline(dataset: dict[str, Any], task: dict[str, Any], **train: Any) -> dict[str, Any]:
    return {
        "name": "x",
        "source": {"tables": {"texts": {"format": "text", "path": "texts"}}},
        "dataset": {"path": "data", "features": {"text": {"encoder": "characters", "length": LENGTH}}, **dataset},
        "task": {"kind": "language", "layers": 1, "heads": 2, "width": 16, "sample_tokens": 8, **task},
        "train": {"global_batch": 16, "epochs": 3, "lr": 1e-2, **train},
    }


class Written(Hooks):
    def __init__(self) -> None:
        self.texts: dict[int, str] = {}

    def write(self, epoch: int, text: str) -> None:
        self.texts[epoch] = text


def run_training(
    context: WorkerContext, home: Path, folder: Path, train: dict[str, Any]
) -> tuple[Trained, dict[int, str], dict[str, Tensor]]:
    config: Config = parse(pipeline({}, {}, **train), "x.yaml")
    version, hooks = open_version(str(home)), Written()
    learned = build_task(config.task, version.manifest)
    strategy = create_strategy(config.train, learned, context)
    result = Loop(config, version, learned, strategy, Checkpoints(RunDirectory(str(folder)), context, 2), hooks).run()
    return result, hooks.texts, dict(strategy.model.state_dict())


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packed")
    commit_arrays(
        str(folder), {"train": [{"text": text_windows(TEXT)}], "validation": [{"text": text_windows(TEXT[:300])}]}, {"text": encoder()}
    )
    return folder


def test_it_learns_and_writes_after_every_epoch(home: Path, tmp_path: Path) -> None:
    result, texts, _ = run_training(WorkerContext(), home, tmp_path, {})
    assert list(texts) == [1, 2, 3] and all(len(text) >= 8 for text in texts.values())
    assert result.metrics["validation/nats_per_token"] < 2.3 < log(len(set(TEXT)) + 2)


def test_p5_the_model_is_the_same_for_two_workers(home: Path, tmp_path: Path) -> None:
    alone, _, weights = run_training(WorkerContext(), home, tmp_path / "alone", {"strategy": "exact"})
    (together, texts, metric_by_name), (_, silence, _) = run_group(
        2, tmp_path / "group", run_training, home, tmp_path / "two", {"strategy": "exact"}
    )
    assert (together.metrics, list(texts), silence) == (alone.metrics, [1, 2, 3], {})
    assert all(torch.equal(values, metric_by_name[name]) for name, values in weights.items())


def test_p3_two_workers_agree_to_rounding(home: Path, tmp_path: Path) -> None:
    alone, _, _ = run_training(WorkerContext(), home, tmp_path / "alone", {})
    (together, _, _), _ = run_group(2, tmp_path / "group", run_training, home, tmp_path / "two", {})
    assert (together.rows, together.steps) == (alone.rows, alone.steps)
    assert together.metrics == pytest.approx(alone.metrics, rel=1e-3)
