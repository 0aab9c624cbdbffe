"""Measures what a training gains from the weights of another: MNIST's digits first, and then a few of scikit-learn's.

    LOCKSTEP_RAW=FOLDER python -m benchmarks.finetune [--shares 0.01 0.1 1] [--seeds 1 2 3] [--folder FOLDER] [--results FOLDER]

MNIST's pictures of 28x28 pixels become 8x8 in the query, the size of the other digits. Four trainings for each share of the rows and each
seed, which draws the rows too: from nothing, fine-tuned, with a frozen trunk, both with a new last layer, and fine-tuned with all layers,
as the classes are the same. The test rows are always the same, about 30 % of all. There is no validation: the model is that of the last
epoch, after 400 to 500 steps.
A measurement that was broken off goes on where it stopped if `--folder` names the same folder.
"""

import argparse
import json
import tempfile
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.report import RESULTS, Row, package_versions, save, show
from pipelines import api
from pipelines.config import Config
from pipelines.data.versions.versions import open_version
from pipelines.launch.cluster import cluster

SMALL_MNIST = """
SELECT label, split, transform(sequence(0, 63), place -> CAST(aggregate(sequence(0, 8), 0, (total, cell) -> total + CAST(
    conv(hex(substring(image, (2 + place DIV 8 * 3 + cell DIV 3) * 28 + 3 + place % 8 * 3 + cell % 3, 1)), 16, 10) AS int
  )) DIV 9 AS int)) AS image
FROM (SELECT image, label, 'train' AS split FROM train UNION ALL SELECT image, label, 'test' AS split FROM test)
"""
"""Means of 3x3 pixels, without the outer two of 28 on each side."""
SOME_DIGITS = """
SELECT transform(slice(cells, 1, 64), cell -> try_cast(cell AS int) * 255 DIV 16) AS image, try_cast(get(cells, 64) AS int) AS label, split
FROM (
  SELECT split(line, ',') AS cells, pmod(xxhash64(line, {seed}), 1000) AS draw,
    CASE WHEN pmod(xxhash64(line), 10) < 3 THEN 'test' ELSE 'train' END AS split
  FROM digits
)
WHERE split = 'test' OR draw < {draws}
"""
Answers = dict[tuple[float, str], list[list[float]]]
BATCHES = {0.01: (8, 200), 0.1: (32, 100), 1.0: (64, 20)}
"""By share of the rows: rows of a step, and epochs."""
CLASSES = [str(digit) for digit in range(10)]
TRUNK = {"strict": False, "rename": {"network\\.11\\.": "classes."}}
"""All layers of MNIST's network but the last, whose classes are another task's."""
WAYS: dict[str, tuple[dict[str, Any] | None, dict[str, Any]]] = {
    "from nothing": (None, {"train.lr": 8e-3}),
    "fine-tuned": (TRUNK, {"train.lr": 2e-3}),
    "frozen trunk": (TRUNK, {"train.lr": 8e-3, "train.freeze": ["network.[038].*"]}),
    "all layers": ({}, {"train.lr": 2e-3}),
}
"""Options of `train.init_from`, None for random weights; and the settings that differ from those of conf/digits.yaml."""


def places(home: Path, name: str) -> dict[str, Any]:
    uri = f"sqlite:///{home}/mlflow.db"
    return {"dataset.path": f"{home}/data-{name}", "train.storage": f"{home}/runs", "tracking.uri": uri, "train.workers": 1}


def pretrain(home: Path, epochs: int) -> str:
    """ID of a training on MNIST's pictures of 8x8 pixels."""
    changes = {"source.query": SMALL_MNIST, "dataset.features.image.shape": [1, 8, 8], "train.epochs": epochs}
    config = api.read_config("conf/mnist.yaml", {**places(home, "mnist"), **changes})
    api.prepare(config)
    result = api.train(config)
    print(f"MNIST in 8x8 pixels: test accuracy {result.metrics['test/accuracy']:.4f}, run {result.run_id}", flush=True)
    return result.run_id


def digits_config(home: Path, share: float, seed: int, way: str, run_id: str) -> Config:
    """The config of one training on a share of scikit-learn's digits."""
    batch, epochs = BATCHES[share]
    options, settings = WAYS[way]
    origin = {} if options is None else {"train.init_from": {"run": run_id, **options}}
    changes = {
        "source.query": SOME_DIGITS.format(seed=seed, draws=round(1000 * share)),
        "dataset.split": {"by": "split"},
        "dataset.target": {"label": {"encoder": "label", "order": CLASSES}},
        "train.remainder": "keep",
        "train.global_batch": batch,
        "train.epochs": epochs,
        "train.seed": seed,
        **settings,
        **origin,
    }
    return api.read_config("conf/digits.yaml", {**places(home, f"digits-{share:g}-{seed}"), **changes})


def measure(home: Path, shares: list[float], seeds: list[int], epochs: int) -> Answers:
    """The test accuracy and the rows of every training, by share, way and seed; those in the folder's notes are not repeated."""
    notes = home / "accuracies.json"
    notes_by_key = json.loads(notes.read_text()) if notes.exists() else {}
    run_id = notes_by_key.setdefault("run", "") or pretrain(home, epochs)
    answers: Answers = {}
    for share, seed, way in product(shares, seeds, WAYS):
        key, config = f"{share:g} {seed} {way}", digits_config(home, share, seed, way, run_id)
        if key not in notes_by_key:
            if way == next(iter(WAYS)) or not Path(config.dataset.path).exists():
                api.prepare(config)
            version = open_version(config.dataset.path, config.data_identity)
            notes_by_key |= {"run": run_id, key: [api.train(config).metrics["test/accuracy"], version.rows("train")]}
            notes.write_text(json.dumps(notes_by_key))
        answers.setdefault((share, way), []).append(notes_by_key[key])
        print(key, *notes_by_key[key], flush=True)
    return answers


def table(answers: Answers) -> list[Row]:
    """A row for each share, with the mean and the range over seeds of each way."""
    rows: dict[float, Row] = {}
    for (share, way), trainings in answers.items():
        accuracies, counts = zip(*trainings, strict=True)
        row = rows.setdefault(share, {"share of the rows": f"{share:.0%}", "rows": round(mean(counts))})
        row |= {way: mean(accuracies), f"{way}, range": f"{min(accuracies):.3f} to {max(accuracies):.3f}"}
    return list(rows.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shares", nargs="+", type=float, choices=BATCHES, default=list(BATCHES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--epochs", type=int, default=5, help="of the training on MNIST")
    parser.add_argument("--folder", type=Path, help="of data, runs and mlflow.db; a temporary one by default")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="finetune-", dir="/tmp") as temporary:
        home = arguments.folder or Path(temporary)
        home.mkdir(parents=True, exist_ok=True)
        with cluster(api.read_config("conf/digits.yaml", {"train.workers": 1}).train):
            rows = table(measure(home, arguments.shares, arguments.seeds, arguments.epochs))
    title = f"test accuracy on scikit-learn's digits, mean of {len(arguments.seeds)} seeds"
    show(title, rows)
    print(save("finetune", {title: rows}, package_versions("torch"), arguments.results))


if __name__ == "__main__":
    main()
