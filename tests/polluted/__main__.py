"""Tries all cases, and prints how many of each pollution are right, refused, said or silently wrong.

`PYTHONPATH=.:tests python -m polluted [WORDS]` tries those whose pollution or case has these words, and prints each that is not good. The
last line says how often the separator is right, and how often that of DuckDB's `sniff_csv` is, with its settings for broken files.
"""

import sys
from collections import Counter, defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb

from pipelines.errors import LockstepError
from pipelines.init.tables.dialect import find_dialect
from pipelines.init.tables.sample import find_encoding
from polluted.outcomes import Outcome, judge
from polluted.pollutions import Polluted, all_cases

_KINDS = ("right", "refused", "said", "wrongly refused", "silently wrong")


def main(words: str) -> int:
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    right_separators = Counter[str]()
    with TemporaryDirectory() as folder:
        for polluted in all_cases():
            if words and words not in f"{polluted.pollution}: {polluted.case}":
                continue
            try:
                outcome = judge(polluted, Path(folder))
            except Exception as error:  # one case that fails is a case that is wrong
                outcome = Outcome("silently wrong", f"{type(error).__name__}: {error}")
            counts[polluted.pollution][outcome.kind] += 1
            guesses = separators(polluted, Path(folder))
            right_separators.update(sniffer for sniffer, guess in guesses.items() if guess == polluted.style.separator)
            if not outcome.is_good:
                print(f"{outcome.kind}: {polluted.pollution}: {polluted.case}: {outcome.reason[:400]}")
    print(f"{'pollution':36}" + "".join(f"{kind:>16}" for kind in _KINDS))
    for pollution, by_kind in [*counts.items(), ("all", sum(counts.values(), Counter()))]:
        print(f"{pollution:36}" + "".join(f"{by_kind[kind] or '':>16}" for kind in _KINDS))
    total = sum(counts.values(), Counter[str]())
    good = total["right"] + total["refused"]
    print(f"{100 * good / max(total.total(), 1):.2f} % of {total.total():,} right or refused")
    print(f"the separator is right in {right_separators['lockstep']:,}, and DuckDB's in {right_separators['duckdb']:,}")
    return 0 if total["silently wrong"] == 0 else 1


def separators(polluted: Polluted, folder: Path) -> dict[str, str]:
    """The separator of a file by who guesses it; empty if the guess is refused."""
    path = folder / "sniffed.csv"
    path.write_bytes(polluted.content)
    try:
        dialect, _ = find_dialect(polluted.content, find_encoding(polluted.content, path.name), is_cut=False)
        guess = dialect.separator
    except LockstepError:
        guess = ""
    try:
        tolerant = "strict_mode = false, ignore_errors = true, null_padding = true"
        (guess_of_duckdb,) = duckdb.connect().execute(f"SELECT Delimiter FROM sniff_csv(?, {tolerant})", [str(path)]).fetchall()[0]
    except duckdb.Error:
        guess_of_duckdb = ""
    return {"lockstep": guess, "duckdb": guess_of_duckdb}


if __name__ == "__main__":
    sys.exit(main(" ".join(sys.argv[1:])))
