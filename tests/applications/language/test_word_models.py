"""Words as tokens: what a text's words are, which of them are known, and the networks and heads that learn from them."""

import re
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from fitting import fit, gather_statistics
from groups import run_group
from torch.export import Dim

from pipelines.applications.language.encoders import Words
from pipelines.applications.language.network import EXTENT, NATS, TOKENS
from pipelines.applications.language.settings import LanguageSettings
from pipelines.applications.language.task import Language
from pipelines.config import parse
from pipelines.config.dataset.dataset import Dataset
from pipelines.config.train.train import Train
from pipelines.data.features import encoder_notes, restore_encoder
from pipelines.data.features.statistics import Accumulator, combine_summaries
from pipelines.data.features.text_pieces import line_word_counts, line_words
from pipelines.data.versions.manifest import FittedEncoder
from pipelines.data.versions.plain import commit_arrays
from pipelines.data.versions.schema import ROW_NUMBERS, TensorColumn
from pipelines.data.versions.versions import open_version
from pipelines.errors import ConfigError
from pipelines.strategies.sharded.pipelined import Pipelined
from pipelines.strategies.sharded.sharded import Sharded
from pipelines.tasks.base import Batch, Data
from pipelines.tasks.bind import build_task, task_data
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.loop import Loop
from pipelines.train.run_context import Hooks, Trained
from pipelines.train.strategy import create_strategy
from pipelines.train.workers import WorkerContext

pytestmark = pytest.mark.usefixtures("one_thread")

LENGTH, VOCABULARY = 6, 40
NETWORKS: dict[str, dict[str, Any]] = {
    f"{network}{', tied' if tied else ''}{', clusters' if cutoffs else ''}": {"network": network, "tied": tied, "cutoffs": cutoffs}
    for network in ("gpt", "lstm")
    for tied in (False, True)
    for cutoffs in ([], [10, 20])
}


def fit_words(*texts: str | None, **settings: Any) -> FittedEncoder:
    return fit({"text": {"encoder": "words", "length": LENGTH, **settings}}, {}, pa.table({"text": pa.array(texts, pa.string())}))["text"]


def restore(fitted: FittedEncoder) -> Words:
    encoder = restore_encoder(fitted)
    assert isinstance(encoder, Words)
    return encoder


def task(**settings: Any) -> Language:
    column = TensorColumn(name="text", dtype="uint8", shape=(LENGTH + 1,), cardinality=VOCABULARY)
    small = {"kind": "language", "layers": 2, "heads": 2, "width": 16, "sample_tokens": 5, **settings}
    data = Data((column,), tokens=tuple(f" w{number}".encode() for number in range(VOCABULARY)), unknown_word=1)
    return Language(LanguageSettings.model_validate(small), data)


def window_batch(rows: int, below: int = VOCABULARY) -> Batch:
    return {"text": torch.randint(1, below, (rows, LENGTH + 1), generator=torch.Generator().manual_seed(3), dtype=torch.uint8)}


def test_words_stand_between_white_space_and_each_line_break_is_one() -> None:
    assert line_words(" A  b,\tb\r\n\n= C =\n") == ["A", "b,", "b", "\n", "\n", "=", "C", "=", "\n"]
    assert line_words("") == []
    counts = line_word_counts(pa.array(["A a\na", None, ""]), lowercase=True)
    assert dict(zip(*counts.to_pydict().values(), strict=True)) == {"a": 3, "\n": 1}


def test_the_most_frequent_words_are_known_and_ties_are_by_their_text() -> None:
    state = fit_words("b a c b\n", "c <unk> d", vocabulary=3).state
    assert state == {"words": ["b", "c", "\n"], "unknown": 3, "total": 8}


def test_other_words_are_unknown_as_is_the_word_that_says_so() -> None:
    encoder = restore(fit_words("b a b <unk>\n", vocabulary=2))
    (document,) = encoder.encode(pa.array(["b\nb zebra <unk> a"])).to_pylist()
    assert b"".join(encoder.tokens[number] for number in document) == b" b\n b <unk> <unk> <unk>"
    assert encoder.unknown_word == 1 and encoder.tokens[0] == b""


def test_lower_case_joins_words() -> None:
    assert fit_words("The the THE", lowercase=True).state["words"] == ["the"]
    assert restore(fit_words("the", lowercase=True)).encode(pa.array(["THE"])).to_pylist() == [[2]]


def test_a_text_without_a_word_is_refused() -> None:
    encoder = restore(fit_words("a b"))
    assert encoder.encode(pa.array(["a", None, "", " \t", "b b"])).is_null().to_pylist() == [False, True, True, True, False]
    assert (encoder.fault(" \t"), encoder.fault(""), encoder.fault(None)) == ("it has only white space", "", "")
    with pytest.raises(ConfigError, match="column text has no word in the training split; use another column"):
        fit_words(None, "", " ")


def test_p6_parts_of_the_texts_add_up_in_any_order() -> None:
    texts = [f"w{number % 7} w{number % 3}\nlast" for number in range(40)]
    assert fit_words(*texts, vocabulary=4) == fit_words(*reversed(texts), vocabulary=4)
    summaries = []
    for part in (texts[:9], texts[9:]):
        accumulator = Accumulator({"line_words"})
        accumulator.add(pa.array(part), np.zeros(len(part), np.uint64))
        summaries.append(accumulator.summary())
    assert combine_summaries(summaries)["pieces"] == sum(len(line_words(text)) for text in texts)


def test_words_that_spark_no_longer_counts_one_by_one_are_unknown_too() -> None:
    dataset = Dataset.model_validate({"path": "data", "features": {"text": {"encoder": "words", "length": 4}}})
    raw = pa.table({"text": ["a a b c"]})
    (statistics,) = gather_statistics(dataset, raw).values()
    assert statistics.pieces == 4 and statistics.counts is not None and len(statistics.counts) == 3


@pytest.mark.parametrize(
    ("vocabulary", "note"),
    [(2, r"text: 4 of the 10 words of .* \(40.00%\) are unknown: 2 have a token"), (9, "text: all 10 words .*; lower vocabulary")],
)
def test_etl_says_how_many_words_are_unknown(vocabulary: int, note: str) -> None:
    (line,) = encoder_notes({"text": fit_words("a a a b b b c c d d", vocabulary=vocabulary)})
    assert re.fullmatch(note, line)


@pytest.mark.parametrize("settings", NETWORKS.values(), ids=NETWORKS)
def test_a_model_gives_every_word_a_probability(settings: dict[str, Any]) -> None:
    torch.manual_seed(0)
    learned, batch = task(**settings), window_batch(4)
    model = learned.model().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    windows = batch["text"].long()
    probable = model.network(windows[:, :-1]).log_softmax(-1)
    torch.testing.assert_close(probable.exp().sum(-1), torch.ones(4, LENGTH))
    output = model(batch)
    torch.testing.assert_close(output[:, NATS], -probable.gather(2, windows[:, 1:, None]).sum((1, 2)))
    assert output[:, TOKENS].tolist() == [LENGTH] * 4 and output[:, EXTENT].tolist() == (windows[:, 1:] == 1).sum(1).tolist()


@pytest.mark.parametrize("settings", NETWORKS.values(), ids=NETWORKS)
def test_weights_of_words_that_a_batch_lacks_have_a_gradient(settings: dict[str, Any]) -> None:
    model = task(**settings).model()
    model(window_batch(3, below=5))[:, NATS].sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_what_is_shared_has_one_name() -> None:
    def names(**settings: Any) -> set[str]:
        return {name.partition(".weight")[0] for name in task(**settings).model().network.state_dict() if "blocks" not in name}

    assert names() == {"embedding", "head"} and names(tied=True) == {"embedding"}
    assert names(cutoffs=[10]) == {"embedding", "head.head", "head.tail.0.0", "head.tail.0.1"}
    assert names(cutoffs=[10], tied=True) == {"head.head", "head.tail.0.0", "head.tail.0.1"}


def test_an_lstm_begins_each_window_anew_and_predicts_from_words_before() -> None:
    model = task(network="lstm").model().eval().network
    tokens = window_batch(3)["text"].long()[:, :-1]
    changed_tokens = tokens.clone()
    changed_tokens[0, 3] = 2 + (tokens[0, 3] - 1) % 8
    before, after = model(tokens), model(changed_tokens)
    torch.testing.assert_close(before[1:], after[1:])
    torch.testing.assert_close(before[0, :3], after[0, :3])
    assert ((before[0, 3:] - after[0, 3:]).abs().amax(dim=1) > 1e-6).all()
    torch.testing.assert_close(model(tokens[2:]), before[2:])


def test_bits_per_byte_of_words_are_nowhere() -> None:
    learned, batch = task(network="lstm"), window_batch(3)
    output = learned.model().eval()(batch)
    metrics, details = learned.metrics(), learned.details()
    learned.update(metrics, output, batch)
    metric_by_name = {name: value.item() for name, value in metrics.compute().items()}
    assert metric_by_name.keys() == {"nats_per_token", "perplexity"}
    assert log(metric_by_name["perplexity"]) == pytest.approx(metric_by_name["nats_per_token"])
    details.update(output.detach(), {**batch, ROW_NUMBERS: torch.arange(3)})
    predictions = learned.predict(output)
    assert predictions.keys() == {"nats_per_token", "unknown", "nats", "tokens"}
    assert not any("byte" in column for table in details.result("test", {}).tables.values() for column in table)
    assert learned.prediction_form() == {"form": "pipelines.applications.language.answers:word_likelihoods"}
    assert learned.trivial_predictors()[0].output(batch).shape == (3, 3)


def test_a_model_of_many_words_computes_few_windows_at_once() -> None:
    assert task().rows_at_once == 2**25 // (LENGTH * VOCABULARY)
    column = TensorColumn(name="text", dtype="int32", shape=(LENGTH + 1,), cardinality=2**24)
    assert Language(LanguageSettings(), Data((column,), tokens=(b"",) * 2**24, unknown_word=1)).rows_at_once == 1


def test_it_writes_words() -> None:
    learned = task(network="lstm", cutoffs=[10, 20])
    with torch.no_grad():
        text = learned.sample(learned.model().eval(), 1)
    assert len(text.split()) == 5 and all(word[0] == "w" for word in text.split())


@pytest.mark.parametrize(
    ("settings", "strategy", "message"),
    [
        ({"network": "lstm"}, {"tensor": 2}, "tensor is 2, but task Language supports only replicate, shard; set tensor to 1"),
        ({"network": "lstm"}, {"context": 2}, "context is 2, but task Language supports only replicate, shard; set context to 1"),
        ({"network": "lstm"}, {"pipeline": 2}, "pipeline is 2, but task Language supports only replicate, shard; set pipeline to 1"),
        ({"tied": True}, {"tensor": 2}, "tensor is 2, but task Language supports only replicate, shard, context; set tensor to 1"),
        ({"tied": True}, {"pipeline": 2}, "pipeline is 2, but task Language supports only replicate, shard, context; set pipeline to 1"),
        ({"cutoffs": [10]}, {"tensor": 2}, "supports only replicate, shard, pipeline, context; set tensor to 1"),
    ],
)
def test_strategies_that_cannot_divide_a_network_say_so_before_training(
    settings: dict[str, Any], strategy: dict[str, Any], message: str
) -> None:
    train = Train.model_validate({"workers": 2, "global_batch": 8, "strategy": {"kind": "sharded", **strategy}})
    with pytest.raises(ConfigError, match=message):
        (Pipelined if "pipeline" in strategy else Sharded).check(train, task(**settings), None)  # type: ignore[arg-type]


def test_clusters_need_words_and_enough_of_them() -> None:
    learned = task(cutoffs=[10, VOCABULARY])
    with pytest.raises(ConfigError, match=r"cutoffs is \[10, 40\], but the dataset has 40 tokens; each must be less"):
        learned.check()
    with pytest.raises(
        ConfigError,
        match=r"cutoffs is \[10\], but text has tokens that are not numbered by frequency; encode it by words, or remove cutoffs",
    ):
        Language(LanguageSettings(cutoffs=(10,)), Data(learned.data.columns, tokens=learned.data.tokens))
    task(cutoffs=[10, VOCABULARY - 1]).check()
    Language(LanguageSettings(), Data(learned.data.columns, tokens=learned.data.tokens)).check()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cutoffs": [20, 10]}, r"cutoffs is \[20, 10\]; write each once, in ascending order, such as \[10, 20\]"),
        ({"cutoffs": [1, 2, 3], "width": 32}, "cutoffs makes 3 clusters, and width is 32; set width to 64 or more, or name fewer"),
        ({"network": "lstm", "heads": 2}, "task.heads: has no effect while task.network is lstm"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(pipeline(settings), "x.yaml")


@pytest.mark.full
def test_an_adaptive_softmax_is_exported_with_any_number_of_rows() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    from pipelines.serving.export.targets import silent, trace

    model, rows = task(network="lstm", tied=True, cutoffs=[10, 20]).model().eval(), window_batch(3)
    shapes = {"text": {0: Dim("rows")}}
    with silent():
        program = torch.onnx.export(
            trace(model, {"text": rows["text"].numpy()}, shapes), dynamo=True, dynamic_shapes=(shapes,), external_data=False, verbose=False
        )
    assert program is not None
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString(), providers=["CPUExecutionProvider"])
    more_rows = window_batch(5)
    (output,) = session.run(None, {session.get_inputs()[0].name: more_rows["text"].numpy()})
    np.testing.assert_allclose(output, model(more_rows).detach().numpy(), rtol=1e-4, atol=1e-4)


TEXT = "the cat sat on the mat\nand the dog sat on the cat . " * 40
FAST = {"network": "lstm", "tied": True, "cutoffs": [4, 8], "layers": 1, "width": 16, "dropout": 0.1}


def pipeline(task_settings: dict[str, Any], **train: Any) -> dict[str, Any]:
    return {
        "name": "x",
        "source": {"tables": {"texts": {"format": "text", "path": "texts"}}},
        "dataset": {"path": "data", "features": {"text": {"encoder": "words", "length": LENGTH}}},
        "task": {"kind": "language", "sample_tokens": 4, **task_settings},
        "train": {"global_batch": 16, "epochs": 2, "lr": 1e-2, **train},
    }


def run_training(context: WorkerContext, home: Path, folder: Path, train: dict[str, Any]) -> tuple[Trained, dict[str, torch.Tensor]]:
    config, version = parse(pipeline(FAST, **train), "x.yaml"), open_version(str(home))
    learned = build_task(config.task, version.manifest)
    strategy = create_strategy(config.train, learned, context)
    result = Loop(config, version, learned, strategy, Checkpoints(RunDirectory(str(folder)), context, 2), Hooks()).run()
    return result, strategy.weights()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, fitted = tmp_path_factory.mktemp("packed"), fit_words(TEXT, vocabulary=10)
    encoder = restore(fitted)
    train, validation = (encoder.windows([encoder.numbers(text)]) for text in (TEXT, TEXT[:300]))
    commit_arrays(str(folder), {"train": [{"text": train}], "validation": [{"text": validation}]}, {"text": fitted})
    assert task_data({"text": fitted}).unknown_word == 1
    return folder


def test_p5_tied_clusters_are_the_same_for_two_workers(home: Path, tmp_path: Path) -> None:
    alone, weights = run_training(WorkerContext(), home, tmp_path / "alone", {"strategy": "exact"})
    (together, other), _ = run_group(2, tmp_path / "group", run_training, home, tmp_path / "two", {"strategy": "exact"})
    assert together.metrics == alone.metrics and alone.metrics["validation/perplexity"] < 11
    assert all(torch.equal(values, other[name]) for name, values in weights.items())


def test_an_lstm_is_spread_over_workers(home: Path, tmp_path: Path) -> None:
    train = {"strategy": "sharded", "workers": 2}
    (together, weights), _ = run_group(2, tmp_path / "group", run_training, home, tmp_path / "two", train)
    assert together.metrics["validation/perplexity"] < 11
    learned = build_task(parse(pipeline(FAST), "x.yaml").task, open_version(str(home)).manifest)
    learned.model().load_state_dict(weights)
