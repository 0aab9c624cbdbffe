"""What Kubernetes and the two operators accept: `refusal` of an object in cluster/kubernetes.

Core kinds, and the pod templates inside other kinds, are held against the schemas that kubernetes-validate carries, and
SparkApplication (v1beta2) against the types that Kubeflow publishes as kubeflow-spark-api. Both leave most enumerations open;
those that matter here are below. So are RayCluster and RayJob (ray.io/v1), with every field that KubeRay 1.5.1 knows:
fields of later versions are refused.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Required

import kubernetes_validate
from kubeflow_spark_api.models import SparkV1beta2SparkApplication
from pydantic import AfterValidator, Field, TypeAdapter

# pydantic takes typing's own only from Python 3.12 on.
from typing_extensions import TypedDict

# KubeRay's reference links to the first; the last is the newest that kubernetes-validate carries.
KUBERNETES = ("1.28", "1.37")
CHOICES = {
    "accessModes": ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"),
    "imagePullPolicy": ("Always", "IfNotPresent", "Never"),
    "restartPolicy": ("Always", "OnFailure", "Never"),
}
QUANTITY = re.compile(r"\d+(\.\d+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")


def _check_core(manifest: dict[str, Any]) -> None:
    """Raise ValueError for an object that one version or the other refuses."""
    for version in KUBERNETES:
        try:
            kubernetes_validate.validate(manifest, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            raise ValueError(f"Kubernetes {version}, {error.json_path}: {error.message}") from error
        except kubernetes_validate.SchemaNotFoundError as error:
            raise ValueError(f"apiVersion {error.api_version}: Kubernetes {version} has no kind {error.kind} there") from error


def _part_of_core(field: str) -> AfterValidator:
    """Of a PodTemplate, which has the two parts that the operators' kinds share with the core."""

    def check(value: Any) -> Any:
        _check_core({"apiVersion": "v1", "kind": "PodTemplate", field: value})
        return value

    return AfterValidator(check)


def _refuse_undescribed(_: Any) -> Any:
    raise ValueError("KubeRay knows this field, but what is inside is not described; do that in tests/operators.py")


Metadata = Annotated[dict[str, Any], _part_of_core("metadata")]
PodTemplate = Annotated[dict[str, Any], _part_of_core("template")]
Count = Annotated[int, Field(ge=0, lt=2**31)]
Positive = Annotated[int, Field(gt=0, lt=2**31)]
Texts = dict[str, str]
Undescribed = Annotated[Any, AfterValidator(_refuse_undescribed)]
Manager = Literal["ray.io/kuberay-operator", "kueue.x-k8s.io/multikueue"]


class HeadGroup(TypedDict, total=False):
    template: Required[PodTemplate]
    rayStartParams: Texts
    resources: Texts
    labels: Texts
    enableIngress: bool
    serviceType: Literal["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"]
    headService: Undescribed


class WorkerGroup(TypedDict, total=False):
    groupName: Required[str]
    template: Required[PodTemplate]
    replicas: Count
    minReplicas: Count
    maxReplicas: Count
    numOfHosts: Count
    idleTimeoutSeconds: Count
    rayStartParams: Texts
    resources: Texts
    labels: Texts
    suspend: bool
    scaleStrategy: dict[Literal["workersToDelete"], list[str]]


class RayClusterSpec(TypedDict, total=False):
    headGroupSpec: Required[HeadGroup]
    workerGroupSpecs: list[WorkerGroup]
    rayVersion: str
    authOptions: dict[Literal["mode"], Literal["disabled", "token"]]
    enableInTreeAutoscaling: bool
    autoscalerOptions: Undescribed
    gcsFaultToleranceOptions: Undescribed
    headServiceAnnotations: Texts
    managedBy: Manager
    suspend: bool


class RayCluster(TypedDict):
    apiVersion: Literal["ray.io/v1"]
    kind: Literal["RayCluster"]
    metadata: Metadata
    spec: RayClusterSpec


class RayJobSpec(TypedDict, total=False):
    entrypoint: str
    clusterSelector: Texts
    rayClusterSpec: RayClusterSpec
    submissionMode: Literal["K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"]
    submitterPodTemplate: PodTemplate
    submitterConfig: dict[Literal["backoffLimit"], Count]
    runtimeEnvYAML: str
    metadata: Texts
    jobId: str
    entrypointNumCpus: float
    entrypointNumGpus: float
    entrypointResources: str
    backoffLimit: Count
    activeDeadlineSeconds: Positive
    ttlSecondsAfterFinished: Count
    shutdownAfterJobFinishes: bool
    deletionStrategy: Undescribed
    managedBy: Manager
    suspend: bool


class RayJob(TypedDict):
    apiVersion: Literal["ray.io/v1"]
    kind: Literal["RayJob"]
    metadata: Metadata
    spec: RayJobSpec


class RestartChoices(TypedDict, total=False):
    type: Literal["Never", "Always", "OnFailure"]


class SparkChoices(TypedDict, total=False):
    type: Literal["Java", "Python", "Scala", "R"]
    mode: Literal["cluster", "client"]
    pythonVersion: Literal["2", "3"]
    restartPolicy: RestartChoices


RAY: dict[str, TypeAdapter[Any]] = {"RayCluster": TypeAdapter(RayCluster), "RayJob": TypeAdapter(RayJob)}
SPARK_CHOICES = TypeAdapter(SparkChoices)


def refusal(manifest: dict[str, Any]) -> str | None:
    """Why an object is refused, naming the field; None for one that is accepted."""
    try:
        match manifest["apiVersion"], manifest["kind"]:
            case "ray.io/v1", "RayCluster" | "RayJob" as kind:
                RAY[kind].validate_python(manifest, strict=True, extra="forbid")
            case "sparkoperator.k8s.io/v1beta2", "SparkApplication":
                # These types refuse quantities, which a sidecar or a pod template may have, unless they are read by from_dict,
                # which lets unknown fields through.
                SparkV1beta2SparkApplication.model_validate(manifest, extra="forbid", by_alias=True, by_name=False)
                SPARK_CHOICES.validate_python(manifest["spec"], extra="ignore")
            case _:
                _check_core(manifest)
        for key, value in _inside(manifest):
            _check_value(key, value)
    except ValueError as error:
        return str(error)
    return None


def _check_value(key: str, value: Any) -> None:
    """Raises ValueError where the schemas take any text and Kubernetes does not."""
    # SparkApplication's restartPolicy is an object.
    if key in CHOICES and not isinstance(value, dict):
        for choice in value if isinstance(value, list) else [value]:
            if choice not in CHOICES[key]:
                raise ValueError(f"{key}: {choice!r} is none of {', '.join(CHOICES[key])}")
    if key in ("requests", "limits"):
        for resource, amount in value.items():
            if not QUANTITY.fullmatch(str(amount)):
                raise ValueError(f"{key}.{resource}: {amount!r} is no quantity such as 250m or 4Gi")


def _inside(value: Any) -> Iterator[tuple[str, Any]]:
    """Every key with its value, at any depth."""
    if isinstance(value, dict):
        yield from value.items()
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _inside(inner)
