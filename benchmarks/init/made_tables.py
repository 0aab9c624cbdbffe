"""Tables by known processes, and those that scikit-learn bundles, written as a newcomer would have them: CSV files."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

BUNDLED = ("breast_cancer", "wine", "diabetes", "iris", "digits", "linnerud")
"""Of scikit-learn; the target is the last column, and those of linnerud are the last three."""
Draw = np.random.Generator
Made = tuple[pd.DataFrame, str]


def numbers(draw: Draw, rows: int, columns: int) -> pd.DataFrame:
    return pd.DataFrame({f"x{number}": draw.normal(size=rows).round(4) for number in range(columns)})


def interactions(draw: Draw) -> Made:
    """Two classes by the product of two numbers and a wave of a third."""
    table = numbers(draw, 5_400, 5)
    score = table.x0 * table.x1 + np.sin(3 * table.x2) + 0.3 * draw.normal(size=len(table))
    return table.assign(y=(score > 0).astype(int)), "y"


def periodic(draw: Draw) -> Made:
    """A wave of one number, whose height another has."""
    table = pd.DataFrame({"angle": draw.uniform(0, 20, 3_000).round(4), "height": draw.uniform(-3, 3, 3_000).round(4)})
    return table.assign(y=(np.sin(2 * table.angle) * table.height + 0.1 * draw.normal(size=3_000)).round(4)), "y"


def rare(draw: Draw) -> Made:
    """A class of 2.3 % of the rows."""
    table = numbers(draw, 6_000, 8)
    score = 1.5 * table.x0 + table.x1 * table.x2 - table.x3**2 + 0.5 * draw.normal(size=len(table))
    return table.assign(y=(score > score.quantile(0.977)).astype(int)), "y"


def panel(draw: Draw) -> Made:
    """150 persons with 20 visits each, and a level for each person."""
    person = np.repeat(np.arange(150), 20)
    table = pd.DataFrame({"person": person, "sex": np.repeat(draw.choice(["m", "f"], 150), 20), "dose": draw.normal(size=3_000).round(3)})
    level = draw.normal(size=150)[person]
    return table.assign(y=(2 * table.dose + level + 0.3 * (table.sex == "m") * table.dose**2 + 0.5 * draw.normal(size=3_000)).round(3)), "y"


def series(draw: Draw) -> Made:
    """Hours with a day, a week and a memory."""
    hours = pd.date_range("2023-01-01", periods=5_000, freq="h")
    noise = np.zeros(len(hours))
    for hour in range(1, len(hours)):
        noise[hour] = 0.8 * noise[hour - 1] + draw.normal()
    season = 5 * np.sin(2 * np.pi * hours.hour / 24) + 3 * (hours.dayofweek >= 5)
    wind = draw.normal(size=len(hours)).round(2)
    return pd.DataFrame({"time": hours.strftime("%Y-%m-%d %H:%M:%S"), "wind": wind, "load": (20 + season + noise + wind).round(3)}), "load"


def many_categories(draw: Draw) -> Made:
    """300 shops with a level each, and 40 kinds with a slope each."""
    shop, kind, price = draw.integers(0, 300, 4_000), draw.integers(0, 40, 4_000), draw.normal(size=4_000).round(3)
    y = draw.normal(size=300)[shop] + draw.normal(size=40)[kind] * price + 0.5 * draw.normal(size=4_000)
    return pd.DataFrame({"shop": [f"s{n}" for n in shop], "kind": [f"k{n}" for n in kind], "price": price, "y": y.round(3)}), "y"


def categories(draw: Draw) -> Made:
    """1,000 rows of ten columns of eight values, whose effects add up."""
    codes = draw.integers(0, 8, (1_000, 10))
    score = sum(draw.normal(size=8)[column] for column in codes.T) + 2 * draw.normal(size=1_000)
    table = pd.DataFrame({f"c{number}": np.array(list("abcdefgh"))[column] for number, column in enumerate(codes.T)})
    return table.assign(y=np.where(score > 0, "yes", "no")), "y"


def wide(draw: Draw) -> Made:
    """200 rows of 150 columns, ten of which count."""
    table = numbers(draw, 200, 150)
    return table.assign(y=(table.iloc[:, :10].sum(axis=1) + draw.normal(size=200)).round(3)), "y"


def duplicates(draw: Draw) -> Made:
    """A quarter of the rows stand twice."""
    table = numbers(draw, 1_500, 6)
    table["y"] = (table.x0 + table.x1 * table.x2 + 0.5 * draw.normal(size=1_500)).round(3)
    return pd.concat([table, table.iloc[:500]]).iloc[draw.permutation(2_000)], "y"


def leak(draw: Draw) -> Made:
    """A column that is known only afterwards: weeks until the contract ended, 52 for all who stayed."""
    table = numbers(draw, 3_000, 6)
    has_left = table.x0 + table.x1 + draw.normal(size=3_000) > 1
    return table.assign(weeks=np.where(has_left, draw.integers(1, 52, 3_000), 52), y=has_left.astype(int)), "y"


def trend(draw: Draw) -> Made:
    """Days of a level that rises."""
    days = pd.date_range("2012-01-01", periods=4_000)
    x = draw.normal(size=4_000).round(3)
    y = (0.002 * np.arange(4_000) + x + 0.5 * draw.normal(size=4_000)).round(3)
    return pd.DataFrame({"day": days.strftime("%Y-%m-%d"), "x": x, "y": y}), "y"


def linear(draw: Draw) -> Made:
    """A weighted sum of six numbers."""
    table = numbers(draw, 4_000, 6)
    return table.assign(y=(table.to_numpy() @ draw.normal(size=6) + draw.normal(size=4_000)).round(3)), "y"


def several(draw: Draw) -> Made:
    """Three numbers: a weighted sum, the same with a product, and a wave."""
    table = numbers(draw, 3_000, 5)
    total = table.x0 - 0.5 * table.x1 + 0.3 * draw.normal(size=len(table))
    wave = np.sin(2 * table.x4) + 0.3 * draw.normal(size=len(table))
    return table.assign(a=total.round(3), b=(total + table.x2 * table.x3).round(3), c=wave.round(3)), "a,b,c"


def words(draw: Draw) -> Made:
    """Texts beside a number, which some words turn round."""
    vocabulary = np.array([f"word{number}" for number in range(300)])
    texts = [" ".join(draw.choice(vocabulary, draw.integers(8, 20))) for _ in range(3_000)]
    level = np.array([sum(int(word[4:]) % 7 - 3 for word in text.split()) for text in texts])
    price = draw.normal(size=3_000).round(3)
    return pd.DataFrame({"note": texts, "price": price, "y": (level / 4 + price + 0.5 * draw.normal(size=3_000) > 0).astype(int)}), "y"


MADE: dict[str, Callable[[Draw], Made]] = {
    make.__name__: make
    for make in (
        interactions, periodic, rare, panel, series, many_categories, categories, wide, duplicates, leak, trend, linear, several, words,
    )
}  # fmt: skip


def write_table(name: str, folder: Path) -> tuple[Path, str]:
    """Write a table of this module, or one of scikit-learn's. Returns its file and the name of its target."""
    if name in MADE:
        table, target = MADE[name](np.random.default_rng(7))
    else:
        from sklearn import datasets  # noqa: PLC0415

        bundle = getattr(datasets, f"load_{name}")(as_frame=True)
        table, target = bundle.frame, "target" if "target" in bundle.frame else ",".join(bundle.target_names)
    file = folder / f"{name}.csv"
    table.to_csv(file, index=False)
    return file, target
