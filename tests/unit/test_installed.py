"""Machines that disagree are told apart before any work, in one line, and exit code 7."""

import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import pytest
import ray
import torch.distributed as dist
from installations import session

from pipelines.config.train.train import Train
from pipelines.errors import DriftError, MismatchError
from pipelines.launch.assignment import PACKAGES, Assignment
from pipelines.launch.cluster import cluster
from pipelines.launch.worker import check_installed, run_attempt
from pipelines.runtime.environment import describe_disagreement, installed_versions
from pipelines.spark.ambient_settings import check_executors


def test_equal_machines_agree() -> None:
    versions = installed_versions(["numpy", "no-such-package"])
    assert versions == {"Python": ".".join(map(str, sys.version_info[:3])), "numpy": version("numpy"), "no-such-package": "missing"}
    assert describe_disagreement(versions, dict(versions), "host") == ""


def test_what_differs_is_named_with_both_versions() -> None:
    driver_versions = {"Python": "3.11.2", "numpy": "2.4.6", "torch": "2.13.0"}
    assert describe_disagreement(driver_versions, {"Python": "3.12.1", "numpy": "2.4.6"}, "worker b") == (
        "worker b has other versions than the driver: Python 3.11.2 here and 3.12.1 there, torch 2.13.0 here and missing there; "
        "give both one image, or one packed environment"
    )


@dataclass
class Given:
    """Of an Assignment, what is compared."""

    installed_versions: dict[str, str]


def test_a_worker_with_other_packages_than_the_driver_refuses() -> None:
    matching_worker: Any = Given(installed_versions(PACKAGES))
    check_installed(matching_worker)
    differing_worker: Any = Given({**matching_worker.installed_versions, "torch": "1.0"})
    with pytest.raises(MismatchError, match=r"torch 1\.0 here and .* there; give both one image"):
        check_installed(differing_worker)


@pytest.mark.parametrize(
    ("spark_session", "message"),
    [
        (session(numpy="1.0"), r"executor there has other versions than the driver: numpy .* here and 1\.0 there"),
        (session(has_pipelines=False), r"executor there does not find the package pipelines; send an environment with"),
        (session(java={"locale": "tr"}), r"the Java of an executor has the locale tr, and en_US is needed; take _JAVA_OPTIONS out of"),
        (
            session(java={"encoding of file names": "ANSI_X3.4-1968"}),
            r"spark.executorEnv.LC_ALL=C.UTF-8 and spark.executor.extraJavaOptions",
        ),
        (session(java={"version": "21"}), r"has the version 21, and 17 is needed; run driver and executors on the same Java"),
    ],
)
def test_an_executor_that_differs_is_refused(monkeypatch: pytest.MonkeyPatch, spark_session: Any, message: str) -> None:
    monkeypatch.setattr("pipelines.spark.ambient_settings.java_version", lambda: "17")
    check_executors(session())
    with pytest.raises(MismatchError, match=message):
        check_executors(spark_session)


def test_a_cluster_of_another_ray_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(*_: object, **__: object) -> None:
        if cluster_version != ray.__version__:
            raise RuntimeError(f"Version mismatch: The cluster was started with:\n    Ray: {cluster_version}")

    cluster_version = "2.0.0"
    monkeypatch.setenv("RAY_ADDRESS", "there:6379")
    monkeypatch.setattr("ray.init", init)
    monkeypatch.setattr("ray.is_initialized", lambda: False)  # an earlier test of this process may have connected it
    monkeypatch.setattr("ray.shutdown", lambda: None)
    with pytest.raises(MismatchError, match=r"Ray: 2\.0\.0; run the driver in the cluster's own image$") as caught, cluster(Train()):
        pass
    assert caught.value.exit_code == 7
    cluster_version = ray.__version__  # as in the cluster's own image
    with cluster(Train()):
        pass


def test_workers_whose_weights_have_parted_are_not_started_again(tmp_path: Path) -> None:
    """They would part again: the error is an answer, and no failure that Ray restarts the group for."""

    def train(*_: Any) -> dict[str, Any]:
        raise DriftError("the workers have parted")

    assignment = Assignment({}, cast(Any, None), "run", str(tmp_path), "host", installed_versions(PACKAGES))
    assert run_attempt(assignment, train) == {"failure": {"kind": "DriftError", "message": "the workers have parted"}}


def test_a_worker_alone_leaves_its_process_group_however_it_ends(tmp_path: Path) -> None:
    """Ray destroys those of several workers only; the threads of another would meet the interpreter's end."""

    def train(*_: Any) -> dict[str, Any]:
        dist.init_process_group("gloo", f"file://{tmp_path}/meet", world_size=1, rank=0)
        raise RuntimeError("a defect")

    assignment = Assignment({}, cast(Any, None), "run", str(tmp_path), "host", installed_versions(PACKAGES))
    with pytest.raises(RuntimeError, match="a defect"):
        run_attempt(assignment, train)
    assert not dist.is_initialized()
