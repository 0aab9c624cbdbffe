"""The order of rows is a pure function: its promises hold for random sizes, shards, batches, windows and seeds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.data.loader.order import Epoch, Order, Shard, shard_range
from pipelines.errors import ConfigError

group_sizes = st.lists(st.integers(1, 300), min_size=1, max_size=40).map(lambda sizes: np.array(sizes, np.int64))


@st.composite
def orders(draw: st.DrawFn, remainder: str = "") -> Order:
    shards = draw(st.integers(1, 12))
    return Order(
        shards=shards,
        global_batch=shards * draw(st.integers(1, 9)),
        seed=draw(st.integers(0, 2**64 - 1)),
        window=draw(st.integers(1, 6)),
        remainder=remainder or draw(st.sampled_from(["drop", "keep"])),
        shuffle=draw(st.booleans()),
    )


def visited_rows(shard: Shard) -> np.ndarray:
    """Numbers of the rows that a shard visits in an epoch, in order."""
    windows = [shard.row_numbers(window)[shard.permutation(window)] for window in range(len(shard.windows))]
    return np.concatenate([np.zeros(0, np.int64), *windows])


@given(group_sizes, orders("keep"), st.integers(0, 3))
def test_p2_every_row_once_with_keep(sizes: np.ndarray, order: Order, epoch: int) -> None:
    plan = Epoch(order, sizes, epoch)
    rows = np.concatenate([visited_rows(plan.shard(shard)) for shard in range(order.shards)])
    assert sorted(rows) == list(range(sizes.sum()))


@given(group_sizes, orders("drop"), st.integers(0, 3))
def test_p2_every_row_once_but_the_reported_remainder_with_drop(sizes: np.ndarray, order: Order, epoch: int) -> None:
    plan = Epoch(order, sizes, epoch)
    rows = np.concatenate([visited_rows(plan.shard(shard)) for shard in range(order.shards)])
    assert len(set(rows)) == len(rows) == sizes.sum() - order.remainder_rows(int(sizes.sum()))


@given(group_sizes, orders())
def test_p3_shards_take_equal_steps_and_share_the_rest_evenly(sizes: np.ndarray, order: Order) -> None:
    plan = Epoch(order, sizes, 0)
    rows = [plan.shard(shard).rows for shard in range(order.shards)]
    full = order.full_steps(plan.rows) * order.microbatch
    assert all(full <= count <= full + order.microbatch for count in rows)
    assert max(rows) - min(rows) <= 1


@given(group_sizes, orders(), st.data())
def test_p4_a_position_is_found_without_visiting_those_before(sizes: np.ndarray, order: Order, data: st.DataObject) -> None:
    shard = Epoch(order, sizes, 1).shard(data.draw(st.integers(0, order.shards - 1)))
    if shard.rows:
        position = data.draw(st.integers(0, shard.rows - 1))
        window, place = shard.find(position)
        assert shard.row_numbers(window)[shard.permutation(window)][place] == visited_rows(shard)[position]


@pytest.mark.parametrize("sizes", [[1000], [400, 600]])
def test_p2_epochs_differ_and_so_do_their_remainders(sizes: list[int]) -> None:
    order = Order(shards=4, global_batch=96, seed=5)
    epochs = [Epoch(order, np.array(sizes), epoch) for epoch in range(4)]
    orders_seen = {tuple(visited_rows(epoch.shard(0))) for epoch in epochs}
    used = [frozenset(np.concatenate([visited_rows(epoch.shard(shard)) for shard in range(4)])) for epoch in epochs]
    assert len(orders_seen) == 4
    assert len(set(used)) == 4


@given(st.integers(1, 64), st.data())
def test_p3_workers_play_contiguous_blocks_that_cover_all_shards(shards: int, data: st.DataObject) -> None:
    world_size = data.draw(st.integers(1, shards))
    blocks = [shard_range(rank, world_size, shards) for rank in range(world_size)]
    assert [shard for block in blocks for shard in block] == list(range(shards))
    assert max(map(len, blocks)) - min(map(len, blocks)) <= 1


def test_p3_known_answers_pin_the_order() -> None:
    """These rows never change: a checkpoint of an older installation must mean the same rows here."""
    plan = Epoch(Order(shards=2, global_batch=4, seed=7, window=2), np.array([5, 4, 6]), 3)
    assert [visited_rows(plan.shard(shard)).tolist() for shard in range(2)] == [[1, 6, 13, 12, 11, 2], [0, 7, 10, 3, 4, 5]]


def test_shuffle_false_visits_rows_as_they_lie() -> None:
    plan = Epoch(Order(shards=2, global_batch=4, shuffle=False, remainder="keep"), np.array([5, 6]), 0)
    assert visited_rows(plan.shard(0)).tolist() == [0, 1, 2, 3, 8]
    assert visited_rows(plan.shard(1)).tolist() == [4, 5, 6, 7, 9, 10]


def test_fewer_rows_than_a_batch_is_an_error_with_the_numbers_and_the_remedy() -> None:
    with pytest.raises(ConfigError, match=r"100 rows .* batch of 512; lower train.global_batch, or set train.remainder"):
        Order(global_batch=512).steps(100)


def test_shards_that_do_not_divide_the_batch_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"global_batch 100 over 8 shards"):
        Order(shards=8, global_batch=100)


def test_more_workers_than_shards_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"lower train.workers"):
        shard_range(0, 9, 8)


def test_an_epoch_of_a_hundred_thousand_row_groups_is_planned_from_prefix_sums() -> None:
    """The windows of a shard are views; planning touches row groups, never rows."""
    plan = Epoch(Order(shards=8, global_batch=4096), np.full(100_000, 100_000), 0)
    shard = plan.shard(7)
    assert shard.rows == 100_000 * 100_000 // 4096 * 512
    window, place = shard.find(shard.rows - 1)
    assert window == len(shard.windows) - 1
    assert place == shard.window_rows[-1] - 1
