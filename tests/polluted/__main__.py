"""Tries all cases, and prints how many of each pollution are right, refused, said or silently wrong.

`PYTHONPATH=.:tests python -m polluted [WORDS]` tries those whose pollution or case has these words, and prints each that is not good.
"""

import sys
from collections import Counter, defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

from polluted.outcomes import Outcome, judge
from polluted.pollutions import all_cases

_KINDS = ("right", "refused", "said", "wrongly refused", "silently wrong")


def main(words: str) -> int:
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    with TemporaryDirectory() as folder:
        for polluted in all_cases():
            if words and words not in f"{polluted.pollution}: {polluted.case}":
                continue
            try:
                outcome = judge(polluted, Path(folder))
            except Exception as error:  # one case that fails is a case that is wrong
                outcome = Outcome("silently wrong", f"{type(error).__name__}: {error}")
            counts[polluted.pollution][outcome.kind] += 1
            if not outcome.is_good:
                print(f"{outcome.kind}: {polluted.pollution}: {polluted.case}: {outcome.reason[:400]}")
    print(f"{'pollution':36}" + "".join(f"{kind:>16}" for kind in _KINDS))
    for pollution, by_kind in [*counts.items(), ("all", sum(counts.values(), Counter()))]:
        print(f"{pollution:36}" + "".join(f"{by_kind[kind] or '':>16}" for kind in _KINDS))
    total = sum(counts.values(), Counter[str]())
    good = total["right"] + total["refused"]
    print(f"{100 * good / max(total.total(), 1):.2f} % of {total.total():,} right or refused")
    return 0 if total["silently wrong"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main(" ".join(sys.argv[1:])))
