"""What is shipped for Slurm, Kubernetes and clouds: it has nobody to try it daily, so what can be held is held here."""

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
import yaml
from servers import RAY_SETTINGS

from pipelines.config import load

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
KUBERNETES = sorted((ROOT / "cluster/kubernetes").glob("*.yaml"))
OBJECTS = [(file, manifest) for file in KUBERNETES for manifest in yaml.safe_load_all(file.read_text()) if manifest]
SECRET = re.compile(r"PASSWORD|SECRET|TOKEN|KEY")
HEALTH = {name: value for name, value in RAY_SETTINGS.items() if "health_check" in name}
PINNED = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
IMAGES = {"lockstep:cpu", "lockstep:gpu", "postgres:17"}


def inside(value: Any) -> Iterator[dict[str, Any]]:
    """Every mapping in a document."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from inside(inner)


def containers() -> list[Any]:
    return [
        pytest.param(file, container, id=f"{file.name}:{container['name']}")
        for file, manifest in OBJECTS
        for mapping in inside(manifest)
        for container in mapping.get("containers", [])
    ]


def variables(manifest: Any) -> list[dict[str, Any]]:
    return [variable for mapping in inside(manifest) for variable in mapping.get("env", [])]


@pytest.mark.parametrize(("file", "container"), containers())
def test_a_container_asks_for_what_it_takes_and_runs_as_nobody(file: Path, container: dict[str, Any]) -> None:
    assert set(container["resources"]["requests"]) == {"cpu", "memory"} and "memory" in container["resources"]["limits"]
    assert container["image"] in IMAGES
    assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    pods = [pod for _, manifest in OBJECTS for pod in inside(manifest) if container in pod.get("containers", [])]
    assert all(pod["securityContext"]["runAsNonRoot"] and pod["automountServiceAccountToken"] is False for pod in pods)


def test_servers_have_probes() -> None:
    containers_of_servers = [
        container
        for _, manifest in OBJECTS
        if manifest["kind"] in ("Deployment", "StatefulSet")
        for container in manifest["spec"]["template"]["spec"]["containers"]
    ]
    assert len(containers_of_servers) == 2 and all(
        {"readinessProbe", "livenessProbe"} <= set(container) for container in containers_of_servers
    )


@pytest.mark.parametrize("file", KUBERNETES, ids=lambda file: file.name)
def test_p8_secrets_are_references_which_some_header_says_how_to_make(file: Path) -> None:
    documented_secrets = {
        (name, key)
        for name, options in re.findall(r"kubectl create secret generic (\S+) (.*)", "\n".join(path.read_text() for path in KUBERNETES))
        for key in re.findall(r"--from-(?:file|literal)=(\w+)", options)
    }
    for variable in variables([manifest for where, manifest in OBJECTS if where == file]):
        if SECRET.search(variable["name"]) or "valueFrom" in variable:
            reference = variable["valueFrom"]["secretKeyRef"]
            assert (reference["name"], reference["key"]) in documented_secrets


def test_what_is_referred_to_is_there() -> None:
    names = {(manifest["kind"], manifest["metadata"]["name"]) for _, manifest in OBJECTS}
    for _, manifest in OBJECTS:
        for mapping in inside(manifest):
            for kind, key in (("ConfigMap", "configMap"), ("PersistentVolumeClaim", "persistentVolumeClaim")):
                if isinstance(mapping.get(key), dict):
                    assert (kind, mapping[key].get("name") or mapping[key]["claimName"]) in names
            if selector := mapping.get("clusterSelector"):
                assert ("RayCluster", selector["ray.io/cluster"]) in names
            mounted = {mount["name"] for container in mapping.get("containers", []) for mount in container.get("volumeMounts", [])}
            claimed = (
                {claim["metadata"]["name"] for claim in manifest["spec"].get("volumeClaimTemplates", [])} if "spec" in manifest else set()
            )
            assert mounted <= {volume["name"] for volume in mapping.get("volumes", [])} | claimed
    text = "\n".join(file.read_text() for file in KUBERNETES)
    assert {("Service", host) for host in re.findall(r"(?:http://|@)([a-z]+):\d+", text)} <= names


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (file.name, shlex.split(spec["entrypoint"]) if "entrypoint" in spec else [spec["mainApplicationFile"], *spec["arguments"]])
        for file, manifest in OBJECTS
        if (spec := manifest.get("spec", {})) and ("entrypoint" in spec or "mainApplicationFile" in spec)
    ],
)
def test_a_job_s_command_is_one(file: str, words: list[str]) -> None:
    job, conf, *flags = [word.removeprefix("local://").removeprefix("/opt/lockstep/") for word in words if word != "python"]
    assert (ROOT / job).exists()
    values = dict(zip((flag.removeprefix("--") for flag in flags[::2]), map(yaml.safe_load, flags[1::2]), strict=True))
    assert load(ROOT / conf, values).dataset.path == "s3://lockstep/data/digits"


def test_versions_are_those_that_were_tried() -> None:
    specs = [manifest["spec"] for _, manifest in OBJECTS if "spec" in manifest]
    assert [spec["rayVersion"] for spec in specs if "rayVersion" in spec] == [PINNED["ray"]]
    assert [spec["sparkVersion"] for spec in specs if "sparkVersion" in spec] == [PINNED["pyspark"]]


@pytest.mark.parametrize("file", ["kubernetes/ray-cluster.yaml", "cloud/ray.yaml", "slurm/train.sbatch"])
def test_every_ray_notices_a_dead_node_as_soon(file: str) -> None:
    text = (ROOT / "cluster" / file).read_text()
    settings = re.findall(r"(RAY_health_check\w+)(?:=|, value: \")(\d+)", text)
    assert set(settings) == set(HEALTH.items())


def test_a_pod_of_ray_has_time_to_save_before_it_is_killed() -> None:
    """Ray ends a node when it is idle after SIGTERM, and at the latest after a time of its own."""
    from ray._private import ray_constants

    assert hasattr(ray_constants, "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S")
    pods = [pod for _, manifest in OBJECTS if manifest["kind"] == "RayCluster" for pod in inside(manifest) if "containers" in pod]
    assert len(pods) == 2
    for pod in pods:
        values = {variable["name"]: variable.get("value") for variable in variables(pod)}
        assert 120 < float(values["RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"]) < pod["terminationGracePeriodSeconds"]


OF_EXECUTOR = [f"SPARK_EXECUTOR_{name}" for name in ("ID", "CORES", "MEMORY", "POD_IP", "POD_NAME")]
EXECUTOR = dict.fromkeys([*OF_EXECUTOR, "SPARK_DRIVER_URL", "SPARK_APPLICATION_ID", "SPARK_RESOURCE_PROFILE_ID"], "x")


@pytest.mark.parametrize(
    ("variables_of_pod", "class_path"),
    [
        ({}, "/spark/conf:/spark/jars/*"),
        ({"SPARK_CONF_DIR": "/conf", "SPARK_CLASSPATH": "/a.jar"}, "/conf:/a.jar:/spark/jars/*"),
        (
            {"HADOOP_CONF_DIR": "/hadoop", "SPARK_EXTRA_CLASSPATH": "/b.jar", "SPARK_DIST_CLASSPATH": "/c/*"},
            "/spark/conf:/hadoop:/spark/jars/*:/b.jar:/c/*",
        ),
    ],
)
def test_an_executor_has_the_class_path_of_spark_s_own_image(tmp_path: Path, variables_of_pod: dict[str, str], class_path: str) -> None:
    (tmp_path / "tini").write_text('#!/bin/bash\nprintf "%s\\n" "$@"\n')
    (tmp_path / "tini").chmod(0o755)
    places = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SPARK_HOME": "/spark", "JAVA_HOME": "/java", "SPARK_JAVA_OPT_0": "-Da=b"}
    script = ["bash", ROOT / "cluster/entrypoint.sh", "executor"]
    command = subprocess.run(script, env={**EXECUTOR, **places, **variables_of_pod}, capture_output=True, text=True, check=True)
    words = command.stdout.splitlines()
    assert words[2:4] == ["/java/bin/java", "-Da=b"] and words[words.index("-cp") + 1] == class_path


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.gpu"])
def test_an_image_is_made_of_what_is_there(name: str) -> None:
    text = (ROOT / "cluster" / name).read_text()
    copied = [word for line in re.findall(r"^COPY (.*)$", text, re.MULTILINE) for word in line.split()[:-1]]
    assert [word for word in copied if not (ROOT / word).exists()] == []
    assert text.rstrip().endswith("USER 1000") or 'ENTRYPOINT ["/opt/entrypoint.sh"]' in text
    assert ("cluster/entrypoint.sh" in copied) == (name == "Dockerfile")


def test_the_cloud_s_file_fits_ray_s_schema() -> None:
    import jsonschema

    described = yaml.safe_load((ROOT / "cluster/cloud/ray.yaml").read_text())
    jsonschema.validate(described, json.loads((Path(ray.__file__).parent / "autoscaler/ray-schema.json").read_text()))
    assert described["head_node_type"] in described["available_node_types"]


@pytest.mark.parametrize(
    "file", sorted([*(ROOT / "cluster").rglob("*.sh"), *(ROOT / "cluster").rglob("*.sbatch")]), ids=lambda file: file.name
)
def test_a_script_is_one(file: Path) -> None:
    subprocess.run(["bash", "-n", file], check=True)
    assert "set -euo pipefail" in file.read_text() and file.stat().st_mode & 0o111


STUBS = {
    "scontrol": "echo here",
    "srun": 'echo "$*" >>"${0%/*}/srun.log"; case "$*" in *" rm -rf "* | *"mkdir -p"*) exit ;; esac; exec sleep 60',
    "ray": 'test "$1" = status && printf " 1 node_a\\n 1 node_b\\n"',
    "python": """trap "exit 143" TERM
echo "$RAY_ADDRESS $LOCKSTEP_HOME $RAY_AUTH_TOKEN_PATH $*"
test "$2" = fail.yaml && exit 5
test "$2" = long.yaml && kill -TERM $PPID && { sleep 30 >/dev/null 2>&1 & wait; }
exit 0""",
}


@pytest.mark.parametrize(("conf", "code"), [("ok.yaml", 0), ("fail.yaml", 5), ("long.yaml", 143)])
def test_slurm_s_script_ends_as_the_training_does(tmp_path: Path, conf: str, code: int) -> None:
    """With stand-ins for Slurm, Ray and the training: of what is tested, only the shell is real."""
    for name, text in STUBS.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    slurm_variables = {"SLURM_JOB_ID": "77", "SLURM_JOB_NODELIST": "here", "SLURM_JOB_NUM_NODES": "2", "SLURM_CPUS_PER_TASK": "3"}
    variables = {"PATH": f"{tmp_path}:/usr/bin:/bin", "LOCKSTEP_HOME": "a home", **slurm_variables}
    script = ["bash", str(ROOT / "cluster/slurm/train.sbatch")]
    job = subprocess.run(
        [*script, conf, "--train.lr", "1"], cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=60, check=False
    )
    home = tmp_path / "a home"
    expected = f"here:20077 {home} {home}/.slurm-77/token jobs/train.py {conf} --train.lr 1\n"
    assert (job.returncode, job.stdout) == (code, expected), job.stderr
    assert not (home / ".slurm-77").exists(), "the token stays"
    assert subprocess.run(script, env=variables, capture_output=True, check=False).returncode == 2
    node_steps = [line for line in (tmp_path / "srun.log").read_text().splitlines() if "ray start" in line]
    assert len(node_steps) == 2 and all("--cpus-per-task=3 " in step for step in node_steps)
