"""Measures two workers on two hosts against two on one host: rows/s of the same training of MNIST's network, alternately.

    PYTHONPATH=.:tests:tests/cluster:cluster/local python -m benchmarks.train.two_hosts [--rounds 3] [--steps 1200]

The hosts are network namespaces of this machine, as in `make test-cluster`. In both cases the same servers run, each worker
has its own Ray node and core, and the job is submitted; on two hosts, gradients cross a bridge. It needs root, PostgreSQL as
`make cluster-up` does, and LOCKSTEP_RAW for MNIST's files.
"""

import argparse
import statistics
import sys

from clusters import SUBMIT, cluster, find_run_id, mlflow_client, new_home, run
from hosts import hosts
from mlflow import MlflowClient
from places import SERVERS
from servers import NODE_CPUS

from benchmarks.report import Row, package_versions, save, show

CONF = "conf/mnist.yaml"


def rate(client: MlflowClient, output: str) -> float:
    """Median rows/s of the training that printed `output`, without the first quarter of its points."""
    points = sorted(client.get_metric_history(find_run_id(output), "train/rows_per_second"), key=lambda point: point.step)
    return statistics.median(point.value for point in points[len(points) // 4 :])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1_200)
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
    with new_home() as home, hosts(["one", "two"]) as servers:
        enter = servers[0].enter
        for number in range(arguments.rounds):
            for hosts_used in ("one", "two"):
                described = {server: servers[server == "ray-node" and hosts_used == "two"].described() for server in SERVERS}
                with cluster(home, described) as environment, mlflow_client(environment) as client:
                    if not number and hosts_used == "one":
                        run([*enter, "spark-submit", "--master", "local[2]", "jobs/etl.py", CONF], environment)
                    # A different seed each time, since the same command would find the finished run.
                    seed = ["--train.seed", str(2 * number + (hosts_used == "two"))]
                    rates[hosts_used].append(rate(client, run([*enter, sys.executable, SUBMIT, "--", *training, *seed], environment)))
                    print(f"{hosts_used}: {rates[hosts_used][-1]:,.0f} rows/s", flush=True)
    medians = {name: statistics.median(host_rates) for name, host_rates in rates.items()}
    table: list[Row] = [{"hosts": name, "rows/s": int(medians[name]), "ratio": medians[name] / medians["one"]} for name in rates]
    title = f"Two workers, {arguments.steps} steps of MNIST's network, median of {arguments.rounds}"
    show(title, table)
    print(save("hosts", {title: table}, package_versions("ray", "torch")))


if __name__ == "__main__":
    sys.exit(main())
