"""Two workers on two hosts against two on one: rows/s of the same training on MNIST's network, in turns.

    PYTHONPATH=.:tests:tests/cluster:cluster/local python benchmarks/two_hosts.py [--rounds 3] [--steps 600]

The hosts are network namespaces of this machine, as in `make test-cluster`: each worker has a core either way, and
between hosts gradients cross a bridge. Needs root, PostgreSQL as `make cluster-up` does, and LOCKSTEP_RAW for MNIST's files.
"""

import argparse
import statistics
import sys

from clusters import SUBMIT, cluster, mlflow_client, new_home, run, run_id_of
from hosts import hosts
from mlflow import MlflowClient
from places import SERVERS
from report import Row, save, show, versions_of
from servers import NODE_CPUS

CONF = "conf/mnist.yaml"


def rate(client: MlflowClient, said: str) -> float:
    """Median rows/s of the training that printed this, its first points left out."""
    points = sorted(client.get_metric_history(run_id_of(said), "train/rows_per_second"), key=lambda point: point.step)
    return statistics.median(point.value for point in points[len(points) // 4 :])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=600)
    arguments = parser.parse_args()
    training = [
        "python",
        "jobs/train.py",
        CONF,
        "--train.workers",
        "2",
        "--train.cpus_per_worker",
        str(NODE_CPUS),
        "--train.max_steps",
        str(arguments.steps),
    ]
    rates: dict[str, list[float]] = {"one": [], "two": []}
    with new_home() as home, hosts(["one", "two"]) as found:
        described = {server: found[server == "ray-node"].described() for server in SERVERS}
        with cluster(home, described) as environment, mlflow_client(environment) as client:
            enter = found[0].enter
            run([*enter, "spark-submit", "--master", "local[2]", "jobs/etl.py", CONF], environment)
            alone = {name: value for name, value in environment.items() if not name.startswith("RAY_")}
            for _ in range(arguments.rounds):
                for hosts_used, said in (
                    ("one", run([*enter, *training], alone)),
                    ("two", run([*enter, sys.executable, SUBMIT, "--", *training], environment)),
                ):
                    rates[hosts_used].append(rate(client, said))
                    print(f"{hosts_used}: {rates[hosts_used][-1]:,.0f} rows/s", flush=True)
    medians = {name: statistics.median(taken) for name, taken in rates.items()}
    table: list[Row] = [{"hosts": name, "rows/s": int(medians[name]), "ratio": medians[name] / medians["one"]} for name in rates]
    title = f"Two workers, {arguments.steps} steps of MNIST's network, median of {arguments.rounds}"
    show(title, table)
    print(save("hosts", {title: table}, versions_of("ray", "torch")))


if __name__ == "__main__":
    sys.exit(main())
