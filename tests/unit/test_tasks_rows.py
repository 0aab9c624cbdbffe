"""The tasks over words, spectrograms, users and items: what they take, what they give, what they draw."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from pipelines.applications.recommendation.next_item import NextItem
from pipelines.applications.recommendation.ratings import Recommendation
from pipelines.applications.recommendation.settings import NextItemSettings
from pipelines.applications.speech.task import Speech, augment
from pipelines.config import TaskSettings
from pipelines.config.tasks.task import TASKS
from pipelines.data.loader.order import row_keys
from pipelines.data.versions.manifest import FittedEncoder
from pipelines.data.versions.schema import FIRST, ROW_KEYS, TensorColumn
from pipelines.errors import ConfigError
from pipelines.tasks.base import Batch, Data, Task
from pipelines.tasks.text import Text

pytestmark = pytest.mark.usefixtures("one_thread")

WORDS = TensorColumn(name="words", dtype="int32", shape=(9,), cardinality=30)
SOUND = TensorColumn(name="sound", dtype="float32", shape=(8, 20))
LABEL = TensorColumn(name="label", dtype="int64", role="target", cardinality=3)
RATING = TensorColumn(name="rating", dtype="float32", role="target")
USER = TensorColumn(name="user", dtype="int32", cardinality=20)
AGE = TensorColumn(name="age", dtype="float32")
ITEM = TensorColumn(name="item", dtype="int32", cardinality=30)
GENRES = TensorColumn(name="genres", dtype="int32", shape=(3,), cardinality=6)
HISTORY = TensorColumn(name="history", dtype="int32", shape=(12,), cardinality=40)
NEXT = replace(HISTORY, name="next", role="target")
SIDES = {"user": ("user", "age"), "item": ("item", "genres")}


def item_names(values: np.ndarray) -> np.ndarray:
    return np.array([f"item {value}" for value in values.ravel()], dtype=object).reshape(values.shape)


def make_task(implementation: type[Task], *columns: TensorColumn, **settings: Any) -> Any:
    path = f"{implementation.__module__}:{implementation.__name__}"
    kind = next(kind for kind, settings in TASKS.by_name.items() if settings.implementation == path)
    return implementation(
        TASKS.by_name[kind].model_validate({"kind": kind, **settings}),
        Data(columns, decode=item_names if columns[-1] is NEXT else lambda y: y),
    )


CASES = {
    "text": lambda: make_task(Text, WORDS, LABEL, embedding=8, filters=4),
    "speech": lambda: make_task(Speech, SOUND, LABEL, filters=[4, 8], shift_frames=3, masked_frames=4, masked_mels=2),
    "factors": lambda: make_task(Recommendation, USER, AGE, ITEM, GENRES, RATING, width=4, **SIDES),
    "dlrm": lambda: make_task(Recommendation, USER, AGE, ITEM, GENRES, RATING, width=4, hidden=[8], network="dlrm"),
    "next_item": lambda: make_task(NextItem, HISTORY, NEXT, width=8, negatives=10, dropout=0.1),
}


@pytest.fixture(params=CASES)
def task(request: pytest.FixtureRequest) -> Task:
    torch.manual_seed(0)
    return CASES[request.param]()


def make_batch(task: Task, rows: int) -> Batch:
    generator = torch.Generator().manual_seed(1)
    batch = {}
    for column in task.data.columns:
        shape = (rows, *column.shape)
        indices = torch.randint(column.cardinality or 1, shape, generator=generator)
        batch[column.name] = (torch.randn(shape, generator=generator) if column.cardinality is None else indices).to(
            getattr(torch, column.dtype)
        )
    stride, start = row_keys(0, 0)
    return {**batch, ROW_KEYS: torch.arange(rows) * stride + start} if task.draws else batch


def test_a_few_steps_lower_the_loss(task: Task) -> None:
    batch, model = make_batch(task, 16), task.model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        total, weight = task.loss(model, batch)
        (total / weight).backward()
        optimizer.step()
        losses.append(float((total / weight).detach()))
    assert losses[-1] < 0.7 * losses[0]


def test_shares_of_a_batch_add_up_to_the_whole(task: Task) -> None:
    """Without dropout and batch norm, which look at more than a row."""
    batch = make_batch(task, 16)
    model = task.model().train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout | torch.nn.BatchNorm2d):
            module.eval()
        if hasattr(module, "dropout") and isinstance(module.dropout, float):
            module.dropout = 0.0
    loss_of_batch = task.loss(model, batch)
    shares = [task.loss(model, {name: values[rows] for name, values in batch.items()}) for rows in (slice(0, 5), slice(5, None))]
    torch.testing.assert_close(sum(total for total, _ in shares), loss_of_batch[0])
    torch.testing.assert_close(sum(weight for _, weight in shares), loss_of_batch[1])


def test_it_predicts_and_measures_also_nothing(task: Task) -> None:
    model, metrics = task.model().eval(), task.metrics()
    for rows in (0, 7):
        batch = make_batch(task, rows)
        with torch.no_grad():
            output = model(batch)
        task.update(metrics, output, batch)
        predicted = task.predict(output)
        assert {len(values) for values in predicted.values()} == {rows}
    metric_values = metrics.compute()
    assert {"loss", task.monitor[0]} <= metric_values.keys() and all(torch.isfinite(value) for value in metric_values.values())


def test_a_training_pass_without_rows_is_zero(task: Task) -> None:
    if isinstance(task, Speech):
        pytest.skip("batch norm needs rows; a shard without any is not run")
    total, weight = task.loss(task.model(), make_batch(task, 0))
    assert (float(total.detach()), float(weight)) == (0, 0)


# Settings and columns that do not fit.


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: make_task(Text, SOUND, LABEL), "takes one column of words"),
        (lambda: make_task(Text, WORDS, LABEL, widths=[3, 10]), "task.widths is [3, 10], but words has only 9 words"),
        (lambda: make_task(Speech, WORDS, LABEL), "takes one spectrogram"),
        (lambda: make_task(Speech, SOUND, LABEL, masked_mels=8), "sound has only 8 mels and 20 frames"),
        (lambda: make_task(Recommendation, USER, ITEM, RATING, user=["user"]), "must name each feature once: item, user"),
        (lambda: make_task(Recommendation, USER, ITEM, LABEL, user=["user"], item=["item"]), "label needs 3 outputs"),
        (lambda: make_task(NextItem, HISTORY, replace(NEXT, cardinality=9)), "next (12,) of 9"),
        (lambda: make_task(NextItem, HISTORY, LABEL), "one sequence as feature and one as target"),
    ],
)
def test_what_does_not_fit_is_said(make: Any, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        make()
    assert says in str(error.value)


def test_every_kind_has_its_implementation_s_name() -> None:
    assert all(
        issubclass(settings, TaskSettings) and settings.model_fields["kind"].default == kind for kind, settings in TASKS.by_name.items()
    )


# What each task promises by itself.


def test_words_that_fill_nothing_have_no_vector() -> None:
    model = CASES["text"]().model().eval()
    assert (model.embedding.weight[0] == 0).all()


def test_an_augmentation_is_a_function_of_the_row_s_key() -> None:
    task = CASES["speech"]()
    sounds, keys = torch.randn(50, 8, 20), make_batch(task, 50)[ROW_KEYS]
    changed = augment(sounds, keys, task.settings)
    turned = torch.randperm(50)
    assert torch.equal(augment(sounds[turned], keys[turned], task.settings), changed[turned])
    assert not torch.equal(augment(sounds, keys + 1, task.settings), changed)


def test_an_augmentation_moves_and_hides_no_more_than_it_may() -> None:
    settings = CASES["speech"]().settings
    keys = make_batch(CASES["speech"](), 400)[ROW_KEYS]
    ramp = torch.arange(1.0, 21).expand(400, 8, 20)
    changed = augment(ramp, keys, settings)
    hidden = changed == 0
    frames, mels = hidden.all(1).sum(1), hidden.all(2).sum(1)
    assert (int(frames.min()), int(frames.max())) == (0, settings.masked_frames)
    assert (int(mels.min()), int(mels.max())) == (0, settings.masked_mels)
    moved = augment(ramp, keys, settings.model_copy(update={"masked_frames": 0, "masked_mels": 0}))[:, 0, 10] - 11
    assert set(moved.int().tolist()) == set(range(-3, 4))


def test_evaluation_is_not_augmented() -> None:
    task = CASES["speech"]()
    model, batch = task.model().eval(), make_batch(task, 5)
    assert torch.equal(model(batch), model({"sound": batch["sound"]}))


def test_places_see_only_what_came_before() -> None:
    task = CASES["next_item"]()
    model = task.model().train()
    for module in model.modules():
        module.dropout = 0.0 if isinstance(getattr(module, "dropout", None), float) else getattr(module, "dropout", None)
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    history = torch.randint(FIRST, 40, (4, 12), dtype=torch.int32)
    history[:, :3] = 0
    later = history.clone()
    later[:, 8:] = torch.randint(FIRST, 40, (4, 4), dtype=torch.int32)
    before, other = (model({"history": rows}) for rows in (history, later))
    torch.testing.assert_close(before[:, 3:8], other[:, 3:8])
    assert not torch.allclose(before[:, 8:], other[:, 8:])
    torch.testing.assert_close(model({"history": history[:, 2:]})[:, 1:], before[:, 3:]), "free places change nothing"


def test_a_rank_counts_the_negatives_above() -> None:
    task = CASES["next_item"]()
    history = torch.zeros(6, 12, dtype=torch.int32)
    history[:, -2:] = torch.tensor([5, 6])
    target = torch.zeros(6, 12, dtype=torch.int32)
    target[:, -1] = 7
    scores = torch.zeros(6, 40)
    scores[:, 7] = torch.tensor([1.0, 1.0, 0.0, -1.0, 1.0, 1.0])
    scores[4, [5, 6]] = 9.0  # what the user has had is no negative
    scores[5, 2:7], scores[5, 8:] = 2.0, 2.0
    metrics = task.metrics()
    task.update(metrics, scores[:1], {"history": history[:1], "next": target[:1]})
    assert metrics.compute()["ndcg_10"] == 1
    ranks = task._rank(scores, history, target[:, -1:].long())
    assert ranks[[0, 1, 4]].tolist() == [0, 0, 0]
    assert (ranks[[2, 3, 5]] >= 10).all(), "an equal score counts as above"
    unknown = torch.full((6, 1), FIRST - 1)
    assert (task._rank(scores, history, unknown) >= 10).all(), "an item that is not in the vocabulary is not found"


def test_scores_that_are_no_numbers_find_nothing_and_the_loss_is_over_items_alone() -> None:
    task = CASES["next_item"]()
    history, target = (torch.zeros(3, 12, dtype=torch.int32) for _ in range(2))
    target[:, -1] = torch.tensor([7, 7, FIRST - 1])
    scores = torch.zeros(3, 40)
    scores[:, :FIRST] = 50.0
    assert (task._rank(torch.full((3, 40), torch.nan), history, target[:, -1:].long()) >= 10).all()
    metrics = task.metrics()
    task.update(metrics, scores, {"history": history, "next": target})
    assert metrics.compute()["loss"] == pytest.approx(math.log(40 - FIRST))


@pytest.mark.parametrize(("keep", "words"), [("first", ["a", "b"]), ("last", ["b", "a"])])
def test_sequences_of_other_places_or_other_vocabularies_are_refused(keep: str, words: list[str]) -> None:
    def fit_sequence(column: TensorColumn, keep: str, words: list[str]) -> FittedEncoder:
        return FittedEncoder(feature={"encoder": "sequence", "keep": keep}, inputs=(column.name,), state={"words": words}, column=column)

    encoders = {"history": fit_sequence(HISTORY, "last", ["a", "b"]), "next": fit_sequence(NEXT, keep, words)}
    with pytest.raises(ConfigError, match=r"task\.kind is next_item, whose sequences keep .*; set `keep: last` and `vocabulary_of"):
        NextItem(NextItemSettings(), Data((HISTORY, NEXT), encoders=encoders))
    NextItem(NextItemSettings(), Data((HISTORY, NEXT), encoders={**encoders, "next": fit_sequence(NEXT, "last", ["a", "b"])}))


def test_the_best_items_are_predicted_by_name() -> None:
    task = CASES["next_item"]()
    scores = torch.zeros(1, 40)
    scores[0, [0, 1, 9, 4]] = torch.tensor([9.0, 8.0, 3.0, 2.0])
    predicted = task.predict(scores)
    assert predicted["prediction"] == ["item 9"]
    assert predicted["items"][0][:2] == ["item 9", "item 4"] and predicted["scores"][0][:2] == [3, 2]


def test_a_user_s_vector_and_an_item_s_meet_in_their_product() -> None:
    model = CASES["factors"]().model().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.bias.fill_(0.5)
        model.user.maps[0].weight[3] = torch.tensor([1.0, 2, 0, 0, 0.25])
        model.item.maps[0].weight[7] = torch.tensor([3.0, 4, 0, 0, 0.125])
    batch = {
        "user": torch.tensor([3, 3]),
        "age": torch.ones(2),
        "item": torch.tensor([7, 8]),
        "genres": torch.zeros(2, 3, dtype=torch.int32),
    }
    assert model(batch)[:, 0].tolist() == [0.5 + 0.25 + 0.125 + 11, 0.5 + 0.25]
