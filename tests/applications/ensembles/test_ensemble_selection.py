"""The greedy selection of members, against one that is written out over lists of picks with exact numbers, and against all averages."""

from collections import Counter
from fractions import Fraction
from itertools import combinations_with_replacement

import numpy as np
import pytest

from pipelines.applications.ensembles.selection import Uses, add_member, lowest_terms, select_members

ROWS = 7


class Errors:
    """The squared error of averages of small random predictions, without rounding."""

    def __init__(self, seed: int, members: int) -> None:
        random = np.random.default_rng(seed)
        self.truth = [Fraction(int(value)) for value in random.integers(0, 8, ROWS)]
        self.predictions = [[Fraction(int(value)) for value in random.integers(0, 8, ROWS)] for _ in range(members)]
        self.calls: Counter[Uses] = Counter()

    def squares(self, picks: list[int]) -> Fraction:
        by_row = zip(*(self.predictions[pick] for pick in picks), strict=True)
        return sum((sum(row) / len(picks) - true) ** 2 for row, true in zip(by_row, self.truth, strict=True))  # type: ignore[misc]

    def __call__(self, uses: Uses) -> tuple[Fraction]:
        self.calls[uses] += 1
        return (self.squares([number for number, count in enumerate(uses) for _ in range(count)]),)


def select_by_hand(errors: Errors, members: int, rounds: int) -> tuple[Fraction, list[int]]:
    """The lowest error that the selection meets, and the first picks that have it."""
    ranking = sorted(range(members), key=lambda number: errors.squares([number]))
    bags = [ranking[: count + 1] for count in range(members)]
    bag = bags[min(range(members), key=lambda count: (errors.squares(bags[count]), count))]
    met = [(errors.squares(bag), 0, bag)]
    for turn in range(1, rounds + 1):
        error, number = min((errors.squares([*bag, number]), number) for number in range(members))
        bag = [*bag, number]
        met.append((error, turn, bag))
    error, _, picks = min(met)
    return error, picks


@pytest.mark.parametrize("members", [2, 3, 5])
@pytest.mark.parametrize("seed", range(12))
def test_it_is_that_of_the_definition(seed: int, members: int) -> None:
    errors = Errors(seed, members)
    uses = select_members(members, 12, errors)  # type: ignore[arg-type]
    error, picks = select_by_hand(errors, members, 12)
    assert errors(uses) == (error,)
    assert uses == lowest_terms(tuple(picks.count(number) for number in range(members)))


@pytest.mark.parametrize("seed", range(6))
def test_it_is_near_the_best_of_all_averages(seed: int) -> None:
    """Of up to eight picks of four members, which are all tried; and never worse than the best member, or than all of them."""
    errors = Errors(seed, 4)
    chosen = errors(select_members(4, 8, errors))[0]  # type: ignore[arg-type]
    bags = [list(bag) for count in range(1, 9) for bag in combinations_with_replacement(range(4), count)]
    best = min(errors.squares(bag) for bag in bags)
    assert chosen <= min(errors.squares([number]) for number in range(4))
    assert chosen <= 1.1 * best


def test_a_member_is_repeated_where_that_is_best() -> None:
    """Of two members, three parts of one and one of the other have no error."""
    outputs = np.array([[0.0, 4.0], [4.0, 0.0]])

    def score(uses: Uses) -> tuple[float]:
        return (float(np.abs(np.average(outputs, axis=0, weights=uses) - [1.0, 3.0]).sum()),)

    assert select_members(2, 4, score) == (3, 1)
    assert select_members(2, 0, score) == (1, 0), "without rounds, the best few"


def test_of_equal_scores_the_fewest_and_the_first_members_count() -> None:
    assert select_members(3, 10, lambda uses: (0.5,)) == (1, 0, 0)
    assert select_members(3, 10, lambda uses: (0.5, float(uses[0] > 0))) == (0, 1, 0), "later numbers decide between equal ones"


def test_an_average_is_scored_once() -> None:
    errors = Errors(0, 3)
    select_members(3, 30, errors)  # type: ignore[arg-type]
    assert set(errors.calls.values()) == {1}
    assert all(lowest_terms(uses) == uses for uses in errors.calls)


def test_uses_in_lowest_terms() -> None:
    assert lowest_terms((4, 0, 2)) == (2, 0, 1)
    assert add_member((2, 0, 1), 1) == (2, 1, 1)
