"""Data sheets of hardware, and the clusters that a text such as `h200x8,a100x64,cpu2` names.

Sheets of this package stand in `data_sheets`. A folder of one's own adds others, and one of the same name takes the place of ours."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, PositiveFloat, PositiveInt, ValidationError

from pipelines.errors import ConfigError

HERE = "here"
"""Name of the data sheet of the machine at hand, which is measured."""
SHEETS = Path(__file__).parent / "data_sheets"
Precision = Literal["fp32", "tf32", "bf16", "fp16", "fp8"]
BYTES: Mapping[str, int] = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1}
"""Bytes of a number, by precision."""


class _Sheet(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Fraction(_Sheet):
    """The fraction of a data sheet's figure that programs reach, and where it is from."""

    fraction: float = Field(gt=0, le=1)
    basis: Literal["measured", "assumed"]
    source: str


class Achieved(_Sheet):
    """The fractions that large operations reach; what small ones lose is computed."""

    matmul: Fraction
    """Of the peak, by a matrix product too large for its memory traffic to count."""
    attention: Fraction
    """Of the peak, by a fused attention kernel."""
    memory: Fraction
    """Of the memory's bandwidth, by elementwise kernels."""
    network: Fraction
    """Of the bandwidth of links and network, by collectives."""


Exchanged = Literal["sums", "shards", "activations", "microbatches"]
"""Gradients of full copies, parameters and gradients of a sharded unit, what a tensor group sums, and what a pipeline passes on."""


class Exchange(_Sheet):
    """The cost of a message, with all that a processor does around it; a GPU has its host for that. A sum is two messages, scattered and
    gathered, of all but a worker's own part."""

    latency_seconds: PositiveFloat
    bytes_per_second: PositiveFloat
    step_seconds: NonNegativeFloat = 0.0
    """What a step with such messages takes once."""


class Hardware(_Sheet):
    """A kind of device, the machine that it is in, and the network between machines. Bandwidths of links are those of one direction."""

    name: str
    peak_flops: Mapping[Precision, PositiveFloat]
    """Multiplications and additions a second of dense matrix products, by precision."""
    memory_bytes: PositiveFloat
    memory_bytes_per_second: PositiveFloat
    devices_per_machine: PositiveInt
    link_bytes_per_second: PositiveFloat
    """Between the devices of a machine, per device."""
    link_latency_seconds: PositiveFloat
    network_bytes_per_second: PositiveFloat
    """Between machines, per device."""
    network_latency_seconds: PositiveFloat
    exchanges: Mapping[Exchanged, Exchange] = Field(default_factory=dict)
    """What processes of one machine without GPUs exchange, as measured; what is not there goes by the links."""
    host_bytes_per_second: PositiveFloat
    """Between a device and its machine's memory."""
    kernel_seconds: PositiveFloat
    """To launch a kernel from Python."""
    price_per_device_hour: PositiveFloat
    price_source: str
    watts: PositiveFloat
    """Of a device."""
    achieved: Achieved
    contention: float = Field(ge=0, le=1)
    """The part of computing that is lost while a collective runs beside it."""
    devices_hours_between_failures: PositiveFloat
    """Mean time between interruptions, times the number of devices."""
    sources: tuple[str, ...]

    def peak(self, precision: str) -> float:
        """FLOP/s of matrix products in a precision. Without such units, those of the next wider one are used."""
        wider = {"fp8": "bf16", "bf16": "fp32", "fp16": "fp32", "tf32": "fp32"}
        peaks = {str(name): value for name, value in self.peak_flops.items()}
        while precision not in peaks:
            precision = wider[precision]
        return peaks[precision]

    @property
    def automatic_precision(self) -> Literal["bf16", "fp32"]:
        """The choice of `train.precision: auto`."""
        return "bf16" if "bf16" in self.peak_flops else "fp32"

    def replace_fraction(self, kind: str, fraction: float, source: str) -> "Hardware":
        """This hardware with a measured fraction of `kind`: matmul, attention, memory or network."""
        measured = Fraction(fraction=fraction, basis="measured", source=source)
        return self.model_copy(update={"achieved": self.achieved.model_copy(update={kind: measured})})


@dataclass(frozen=True)
class Cluster:
    """A number of devices of one kind, in as few machines as hold them."""

    hardware: Hardware
    devices: int

    @property
    def name(self) -> str:
        return f"{self.hardware.name}x{self.devices}"

    @property
    def machines(self) -> int:
        return -(-self.devices // self.hardware.devices_per_machine)


def sheet_paths(folder: Path | None = None) -> dict[str, Path]:
    """The data sheets by name: those of this package, and those of `folder`, which take the place of ours."""
    further = folder.glob("*.yaml") if folder else ()
    return {path.stem: path for path in sorted([*SHEETS.glob("*.yaml"), *further], key=lambda path: (path.parent != SHEETS, path.stem))}


def read_hardware(name: str, folder: Path | None = None) -> Hardware:
    """Read a data sheet of this package or of `folder`. Raises ConfigError for an unknown name, with similar ones, and for a sheet with a
    wrong field."""
    paths = sheet_paths(folder)
    if name not in paths:
        near = get_close_matches(name, paths, n=3, cutoff=0.4) or sorted(paths)
        place = (folder or SHEETS) / f"{name}.yaml"
        raise ConfigError(f"hardware {name!r} has no data sheet; choose {' or '.join(near)}, or write {place}")
    try:
        return Hardware(name=name, **yaml.safe_load(paths[name].read_text(encoding="utf-8")))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        remedy = "correct the field of the data sheet"
        if name == HERE:
            remedy = f"remove the file, and measure this machine again by `lockstep plan CONF.yaml --hardware {HERE} --measure`"
        raise ConfigError(f"{paths[name]}: {field}: {first['msg']}; {remedy}") from error


def parse_clusters(text: str, folder: Path | None = None) -> list[Cluster]:
    """The clusters of a text: names with numbers of devices, such as `h200x8,a100x64`, or a name alone for one machine. Raises ConfigError
    for an unknown name."""
    names = sheet_paths(folder).keys()
    if not text.strip():
        raise ConfigError(f"no hardware is named; give --hardware with one or more of {', '.join(sorted(names))}, such as h200x8")
    clusters = []
    for part in text.split(","):
        matched = None if part.strip() in names else re.fullmatch(r"(.+?)\s*x\s*([1-9]\d*)", part.strip())
        hardware = read_hardware(matched[1] if matched else part.strip(), folder)
        clusters.append(Cluster(hardware, int(matched[2]) if matched else hardware.devices_per_machine))
    return clusters
