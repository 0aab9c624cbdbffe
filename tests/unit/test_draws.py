"""What is drawn for a row depends on seed, epoch and row alone, and looks random."""

from pathlib import Path
from shutil import which

import numpy as np
import pytest
import torch
from versions import write_version

from pipelines.data.loader import ROW_NUMBERS, Loader, Order, shard_range
from pipelines.data.loader.order import row_keys
from pipelines.data.versions.schema import ROW_KEYS
from pipelines.errors import ConfigError
from pipelines.tasks.augmentation import content_keys, random_integers

pytestmark = pytest.mark.usefixtures("one_thread")


def keys(seed: int, epoch: int, rows: int = 20_000) -> torch.Tensor:
    stride, start = row_keys(seed, epoch)
    return torch.arange(rows) * stride + start


def uniform(keys: torch.Tensor, count: int, purpose: int = 0) -> torch.Tensor:
    """Within [0, 1), in as many steps as a float32 holds."""
    return random_integers(keys, count, 2**24, purpose).float() / 2**24


def test_known_answers() -> None:
    """A change here changes what runs draw: it asks for another version of the order."""
    assert row_keys(7, 3) == (-3372029247567499371, -3664011917126035882)
    assert random_integers(torch.tensor([0, 1, -1]), 3, 1_000).tolist() == [[883, 431, 26], [749, 372, 438], [646, 705, 318]]
    assert uniform(torch.tensor([5]), 2, purpose=1).tolist() == [[0.7625397443771362, 0.014727413654327393]]


@pytest.mark.skipif(not which("g++"), reason="torch compiles with g++: apt-get install g++")
@pytest.mark.parametrize("purpose", [0, 3])
def test_compiled_numbers_are_the_plain_ones(purpose: int) -> None:
    """A compiler that computes products of places in wider integers would leave out how they wrap."""
    compiled = torch.compile(lambda keys: random_integers(keys, 5, 99, purpose), dynamic=False)
    assert torch.equal(compiled(keys(0, 0, 50)), random_integers(keys(0, 0, 50), 5, 99, purpose))


def test_numbers_are_uniform_and_unrelated() -> None:
    integers = random_integers(keys(0, 0), 5, 10)
    counts = np.bincount(integers.flatten().numpy(), minlength=10)
    assert abs(counts - 10_000).max() < 500
    first, second = uniform(keys(0, 0), 2), uniform(keys(0, 1), 2)
    assert first.min() >= 0 and first.max() < 1 and abs(first.mean() - 0.5) < 0.01
    for pair in (
        (first[:, 0], first[:, 1]),
        (first[:-1, 0], first[1:, 0]),
        (first[:, 0], second[:, 0]),
        (first[:, 0], uniform(keys(0, 0), 1, 1)[:, 0]),
    ):
        assert abs(torch.corrcoef(torch.stack(pair))[0, 1]) < 0.03


def test_a_row_s_numbers_do_not_depend_on_its_place_or_on_how_many_are_drawn() -> None:
    all_keys = keys(3, 2, 100)
    assert torch.equal(random_integers(all_keys.flip(0), 4, 99), random_integers(all_keys, 4, 99).flip(0))
    assert torch.equal(random_integers(all_keys, 9, 99)[:, :4], random_integers(all_keys, 4, 99))


def test_bounds_may_differ_from_row_to_row() -> None:
    below = torch.tensor([[1], [2], [1_000]])
    integers = random_integers(torch.tensor([5, 6, 7]), 500, below)
    assert (integers >= 0).all() and (integers < below).all() and integers[2].max() > 900


def test_equal_contents_have_equal_keys() -> None:
    columns, other = torch.tensor([[1, 2], [1, 2], [2, 1]]), torch.tensor([[0], [0], [0]])
    first, second, third = content_keys(columns, other).tolist()
    assert first == second != third


@pytest.mark.parametrize("world_size", [1, 3, 8])
def test_p3_every_row_has_one_key_whoever_reads_it(tmp_path: Path, world_size: int) -> None:
    version = write_version(tmp_path, {"train": [{"x": np.arange(500, dtype="float32"), "label": np.zeros(500, "uint8")}]})
    order = Order(8, 40, seed=5, remainder="keep")
    for epoch in range(2):
        keys_by_row = {}
        for rank in range(world_size):
            loader = Loader(version, "train", order, shard_range(rank, world_size, 8), row_numbers=True, row_keys=True)
            loader.load_state_dict({"epoch": epoch, "step": 0, "order_version": 1})
            for batch in loader:
                keys_by_row.update(zip(batch[ROW_NUMBERS].tolist(), batch[ROW_KEYS].tolist(), strict=True))
        assert [keys_by_row[row] for row in range(500)] == keys(5, epoch, 500).tolist()


def test_keys_come_without_numbers_unless_both_are_asked_for(tmp_path: Path) -> None:
    version = write_version(tmp_path, {"train": [{"x": np.zeros(64, "float32"), "label": np.zeros(64, "uint8")}]})
    assert set(next(iter(Loader(version, "train", Order(8, 32), row_keys=True)))) == {"x", "label", ROW_KEYS}
    assert set(next(iter(Loader(version, "train", Order(8, 32))))) == {"x", "label"}


def test_a_column_must_not_have_their_name(tmp_path: Path) -> None:
    version = write_version(tmp_path, {"train": [{ROW_KEYS: np.zeros(64, "float32"), "label": np.zeros(64, "uint8")}]})
    with pytest.raises(ConfigError, match="is called row_key, a name that batches need"):
        Loader(version, "train", Order(8, 32))
