"""Greedy forward selection of an ensemble's members, with replacement.

Caruana, Niculescu-Mizil, Crew and Ksikes 2004, "Ensemble selection from libraries of models".
"""

from collections.abc import Callable
from functools import cache
from math import gcd

Uses = tuple[int, ...]
"""How often each member counts in the average."""
Score = tuple[float, ...]
"""How good an average is: lower is better, and later numbers decide between equal ones. Without NaN."""


def select_members(members: int, rounds: int, score: Callable[[Uses], Score]) -> Uses:
    """How often each of so many members counts in the best average that the selection meets.

    It starts from the best few: members are sorted by their own score, and of the averages of the first one, the first two and so on, the
    best is taken. Each round then adds the member with which the average is best, whether or not it is better than before. Of equal
    scores, that of fewer members, of an earlier round and of an earlier member counts.

    `score` is asked once for each average, in lowest terms: twice each member is the average of one of each.
    """
    score = cache(score)

    def rank(uses: Uses) -> Score:
        return score(lowest_terms(uses))

    ranking = sorted((add_member((0,) * members, number) for number in range(members)), key=rank)
    first_few = [ranking[0]]
    for alone in ranking[1:]:
        first_few.append(add_member(first_few[-1], alone.index(1)))
    best = uses = min(first_few, key=rank)
    for _ in range(rounds):
        uses = min((add_member(uses, number) for number in range(members)), key=rank)
        best = min(best, uses, key=rank)
    return lowest_terms(best)


def add_member(uses: Uses, number: int) -> Uses:
    """The uses with which a member counts once more."""
    return (*uses[:number], uses[number] + 1, *uses[number + 1 :])


def lowest_terms(uses: Uses) -> Uses:
    """The smallest uses with the same average."""
    divisor = gcd(*uses)
    return tuple(count // divisor for count in uses)
