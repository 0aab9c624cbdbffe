"""Counts the rounds that federated training needs for 99 % of MNIST's test digits, beside those of McMahan et al. 2017, table 2 (CNN,
100 clients of which 10 take part in a round, 5 local epochs, batches of 10).

    LOCKSTEP_RAW=FOLDER python -m benchmarks.federated.mnist [--partitions iid two_digits] [--rounds 25] [--folder FOLDER]
                                                      [--results FOLDER]

`iid` is conf/mnist_federated.yaml. With `two_digits`, the digits are sorted and cut into 200 pieces of 300 pictures, of which each client
has two; the paper's 350 rounds take hours on two cores, so the table has the accuracy after as many rounds as were asked for.
A measurement that was broken off goes on where it stopped if `--folder` names the same folder.
"""

import argparse
import tempfile
from pathlib import Path

from mlflow import MlflowClient

from benchmarks.report import RESULTS, Row, package_versions, save, show
from pipelines import api

TARGET = 0.99
PAPER = {"iid": 20, "two_digits": 350}
"""Rounds that the paper needed."""
TWO_DIGITS = """
SELECT image, label, 'train' AS split,
  ((row_number() OVER (ORDER BY label, xxhash64(image), image) - 1) DIV 300 * 173) % 200 DIV 2 AS client
FROM train
UNION ALL
SELECT image, label, 'validation' AS split, 0 AS client FROM test
"""
"""173 * 37 = 1 modulo 200: the two pieces of a client are 37 apart, and 20 are of one digit."""
QUERIES = {"iid": {}, "two_digits": {"source.query": TWO_DIGITS}}


def measure_partition(partition: str, rounds: int, home: Path) -> Row:
    uri = f"sqlite:///{home}/mlflow.db"
    places = {"dataset.path": f"{home}/data-{partition}", "train.storage": f"{home}/runs", "tracking.uri": uri}
    config = api.read_config("conf/mnist_federated.yaml", {"train.epochs": rounds, **places, **QUERIES[partition]})
    api.prepare(config)
    result = api.train(config)
    history = MlflowClient(uri).get_metric_history(result.run_id, "validation/accuracy")
    accuracies = [point.value for point in sorted(history, key=lambda point: point.step)]
    reached = next((number for number, accuracy in enumerate(accuracies, 1) if accuracy >= TARGET), None)
    return {
        "clients": partition,
        f"rounds to {TARGET:.0%}": reached,
        "rounds in the paper": PAPER[partition],
        "rounds": len(accuracies),
        "accuracy, best": max(accuracies),
        "accuracy, last": accuracies[-1],
        "seconds per round": result.seconds / len(accuracies),
        "rows per round": result.rows // len(accuracies),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", nargs="+", choices=QUERIES, default=list(QUERIES))
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--folder", type=Path, help="of data, runs and mlflow.db; a temporary one by default")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="federated-", dir="/tmp") as temporary:
        home = arguments.folder or Path(temporary)
        rows = [measure_partition(partition, arguments.rounds, home) for partition in arguments.partitions]
    title = "MNIST's test digits, 100 clients, 10 in a round, 5 local epochs, batches of 10, two workers"
    show(title, rows)
    print(save("federated", {title: rows}, package_versions("torch"), arguments.results))


if __name__ == "__main__":
    main()
