"""The files in cluster/kubernetes hold what Kubernetes, KubeRay and the Spark operator know, and nothing else."""

import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from operators import refusal

FILES = sorted((Path(__file__).parents[2] / "cluster/kubernetes").glob("*.yaml"))
MANIFESTS = [manifest for file in FILES for manifest in yaml.safe_load_all(file.read_text()) if manifest]
OBJECTS = {f"{manifest['kind']}/{manifest['metadata']['name']}": manifest for manifest in MANIFESTS}
ABSENT = object()
HEAD = "spec.headGroupSpec.template.spec.containers.0"
WORKERS = "spec.workerGroupSpecs.0"
MISTAKES = [
    ("Service/mlflow", "spec.ports.0.port", "5000"),
    ("ConfigMap/mlflow-auth", "data.workers", 2),
    ("PersistentVolumeClaim/mlflow-artifacts", "spec.storage", "100Gi"),
    ("StatefulSet/postgres", "spec.serviceNames", "postgres"),
    ("StatefulSet/postgres", "spec.volumeClaimTemplates.0.spec.accessMode", "ReadWriteOnce"),
    ("StatefulSet/postgres", "spec.volumeClaimTemplates.0.spec.accessModes", ["ReadWrite"]),
    ("Deployment/mlflow", "apiVersion", "apps/v2"),
    ("Deployment/mlflow", "spec.selector", ABSENT),
    ("Deployment/mlflow", "spec.template.spec.containers.0.readinessProbe.httpGet.ports", "http"),
    ("RayCluster/lockstep", "metadata.label", {}),
    ("RayCluster/lockstep", "spec.headGroupSpec", ABSENT),
    ("RayCluster/lockstep", "spec.headGroupSpec.replicas", 1),
    ("RayCluster/lockstep", "spec.headGroupSpec.rayStartParams.num-cpus", 0),
    ("RayCluster/lockstep", "spec.authOptions.mode", "tokens"),
    ("RayCluster/lockstep", "spec.authOptions.modes", "token"),
    ("RayCluster/lockstep", "spec.rayVersion", 2.6),
    ("RayCluster/lockstep", "spec.autoscalerOptions", {}),
    ("RayCluster/lockstep", "spec.upgradeStrategy", {"type": "Recreate"}),
    ("RayCluster/lockstep", f"{HEAD}.name", ABSENT),
    ("RayCluster/lockstep", f"{HEAD}.env.0.value", 0),
    ("RayCluster/lockstep", f"{HEAD}.imagePullPolicy", "Sometimes"),
    ("RayCluster/lockstep", f"{HEAD}.resources.limits.memory", "4 GB"),
    ("RayCluster/lockstep", f"{WORKERS}.groupName", ABSENT),
    ("RayCluster/lockstep", f"{WORKERS}.minReplicas", None),
    ("RayCluster/lockstep", f"{WORKERS}.replicas", True),
    ("RayCluster/lockstep", f"{WORKERS}.containers", []),
    ("RayCluster/lockstep", f"{WORKERS}.template.spec.terminationGracePeriod", 150),
    ("RayJob/lockstep-train", "apiVersion", "ray.io/v2"),
    ("RayJob/lockstep-train", "kind", "RayTask"),
    ("RayJob/lockstep-train", "spec.entryPoint", "python"),
    ("RayJob/lockstep-train", "spec.submissionMode", "K8sJob"),
    ("RayJob/lockstep-train", "spec.rayClusterSpec", {}),
    ("RayJob/lockstep-train", "spec.submitterPodTemplate.restartPolicy", "Never"),
    ("SparkApplication/lockstep-etl", "spec.executor", ABSENT),
    ("SparkApplication/lockstep-etl", "spec.driver.instances", 1),
    ("SparkApplication/lockstep-etl", "spec.driver.env.0.valu", "x"),
    ("SparkApplication/lockstep-etl", "spec.driver.securityContext.runAsNonRot", True),
    ("SparkApplication/lockstep-etl", "spec.sparkConf.spark\\.authenticate", True),
    ("SparkApplication/lockstep-etl", "spec.spark_version", "4.3.0"),
    ("SparkApplication/lockstep-etl", "spec.type", "python"),
    ("SparkApplication/lockstep-etl", "spec.restartPolicy.type", "Sometimes"),
]


def change_value(manifest: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with another value at a path, or none."""
    copy = deepcopy(manifest)
    *folders, last = [part.replace("\\.", ".") for part in re.split(r"(?<!\\)\.", path)]
    place: Any = copy
    for folder in folders:
        place = place[int(folder) if folder.isdigit() else folder]
    if value is ABSENT:
        del place[last]
    else:
        place[last] = value
    return copy


@pytest.mark.parametrize("name", OBJECTS)
def test_an_object_is_accepted(name: str) -> None:
    assert refusal(OBJECTS[name]) is None


@pytest.mark.parametrize(("name", "path", "value"), MISTAKES)
def test_a_mistake_is_refused_by_the_name_of_its_field(name: str, path: str, value: Any) -> None:
    refused = refusal(change_value(OBJECTS[name], path, value))
    assert refused is not None and re.split(r"\.|\\\.", path)[-1] in refused


def test_every_kind_has_its_mistakes() -> None:
    assert {name.split("/")[0] for name, _, _ in MISTAKES} == {name.split("/")[0] for name in OBJECTS}
