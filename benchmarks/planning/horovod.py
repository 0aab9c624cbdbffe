"""Horovod's published scaling: the scenario, with the source of every number, and what the simulator says.

    python -m benchmarks.planning.horovod

Horovod's benchmarks page (github.com/horovod/horovod, docs/benchmarks.rst) states for servers with four Pascal GPUs each and a RoCE network
of 25 Gbit/s, 64 images per GPU, synthetic data: 90 % scaling efficiency for Inception V3 and ResNet-101 and 68 % for VGG-16 on 512 GPUs.
An older version of its README states 90 %, 90 % and 79 % on 128 GPUs. Nothing below was fitted to these.
"""

from collections.abc import Iterator

from benchmarks.report import Row, show
from pipelines.planning.simulation.data_parallel import SimulatedDdp
from pipelines.planning.simulation.links import Network, NetworkLink
from pipelines.planning.simulation.outcome import Outcome
from pipelines.planning.simulation.stragglers import SpeedVariation
from pipelines.planning.simulation.workload import Cluster, Workload, fuse_layers

PUBLISHED = {
    ("Inception V3", 128): 0.90,
    ("ResNet-101", 128): 0.90,
    ("VGG-16", 128): 0.79,
    ("Inception V3", 512): 0.90,
    ("ResNet-101", 512): 0.90,
    ("VGG-16", 512): 0.68,
}
IMAGES = 64
"""Per GPU."""
BYTES = 4.0
"""Of a gradient."""
P100_IMAGES_PER_SECOND = {"Inception V3": 142.0, "ResNet-50": 219.0, "ResNet-152": 91.8, "VGG-16": 154.0}
"""One P100, batch 64, synthetic data: tensorflow.org/performance/benchmarks of May 2017 (tensorflow/docs,
site/en/r1/guide/performance/benchmarks.md). ResNet-101 is not among them."""
RESNET_GFLOPS = {"ResNet-50": 3.8, "ResNet-101": 7.6, "ResNet-152": 11.3}
"""Forward pass of one image: He et al. 2016, table 1."""
INCEPTION_PARAMETERS = 23.9e6
"""Szegedy et al. 2016 as in Keras's table of applications; tf_cnn_benchmarks trains it without the auxiliary classifier."""
NETWORK = Network(
    # 25 Gbit/s, of which a packet of RoCE v2 with 1,024 bytes of payload loses 82 to its headers and the gap between packets.
    # NCCL's own tuning table (src/graph/tuning.cc, hwLat, ring, protocol Simple): 14.0 us for a hop of the network, 5.7 us over PCI.
    between=NetworkLink(25e9 / 8 * 1024 / (1024 + 82), 14.0e-6),
    # PCI Express 3.0 x16 has 15.75 GB/s; NVIDIA's bandwidthTest copies at 10 to 12 between GPUs.
    within=NetworkLink(10e9, 5.7e-6),
    workers_per_machine=4,
)
STRAGGLERS = SpeedVariation(
    # Sinha et al. (SC 2022) found 8 % variation between equal GPUs of a cluster. Theirs is the range of a box plot's whiskers, which is
    # 5.4 standard deviations of a normal distribution.
    worker_sigma=0.08 / 5.4,
    # An assumption: one step of a GPU differs from its next by 1 %.
    step_sigma=0.01,
)
FUSION_BYTES, CYCLE_SECONDS = 64 * 2**20, 0.005
"""Horovod's defaults until version 0.21: docs/tensor-fusion.rst, and the change log of 0.21.0."""
FORWARD_SHARE = 1 / 3
"""Of a step: a backward pass computes two products where the forward pass computes one."""
VGG_BLOCKS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
"""Outputs of the convolutions; each block halves the image's 224 pixels (Simonyan and Zisserman 2015, configuration D)."""
RESNET_101_BLOCKS = ((64, 3, 56), (128, 4, 28), (256, 23, 14), (512, 3, 7))
"""Width, bottlenecks and pixels (He et al. 2016, table 1)."""
STEPS, SEED = 20, 0

Layers = list[tuple[float, float]]
"""Parameters, and multiplications of one image, of each layer, the first one first."""


def vgg_16_layers() -> Layers:
    layers, inputs, pixels = [], 3, 224
    for block in VGG_BLOCKS:
        for outputs in block:
            weights = 9 * inputs * outputs
            layers.append((weights + outputs, weights * pixels**2))
            inputs = outputs
        pixels //= 2
    for inputs, outputs in ((512 * 7 * 7, 4_096), (4_096, 4_096), (4_096, 1_000)):
        layers.append((inputs * outputs + outputs, inputs * outputs))
    return [(float(weights), float(products)) for weights, products in layers]


def resnet_101_layers() -> Layers:
    """Every bottleneck counts as a layer, with its batch norms."""
    layers, inputs = [(9_408.0 + 128, 9_408.0 * 112**2)], 64
    for width, count, pixels in RESNET_101_BLOCKS:
        for number in range(count):
            outputs = 4 * width
            weights = inputs * width + 9 * width**2 + width * outputs + (inputs * outputs if number == 0 else 0)
            norms = 2 * (2 * width + outputs + (outputs if number == 0 else 0))
            layers.append((float(weights + norms), float(weights * pixels**2)))
            inputs = outputs
    return [*layers, (2_048 * 1_000 + 1_000.0, 2_048.0 * 1_000)]


def inception_v3_layers() -> Layers:
    """Equal layers: its gradients are small against its seconds, so that it matters little when they come."""
    return [(INCEPTION_PARAMETERS / 20, 1.0)] * 20


def images_per_second() -> dict[str, float]:
    """Of one P100. ResNet-101's seconds lie between those of its sisters as its products do."""
    speeds = dict(P100_IMAGES_PER_SECOND)
    small, middle, large = (RESNET_GFLOPS[name] for name in ("ResNet-50", "ResNet-101", "ResNet-152"))
    share = (middle - small) / (large - small)
    seconds = (1 - share) / speeds["ResNet-50"] + share / speeds["ResNet-152"]
    return speeds | {"ResNet-101": 1 / seconds}


def workload(model: str) -> Workload:
    """A GPU's step of 64 images."""
    layers = {"VGG-16": vgg_16_layers, "ResNet-101": resnet_101_layers, "Inception V3": inception_v3_layers}[model]()
    backward = [(parameters * BYTES, products) for parameters, products in reversed(layers)]
    seconds = IMAGES / images_per_second()[model]
    return Workload(seconds * FORWARD_SHARE, seconds * (1 - FORWARD_SHARE), fuse_layers(backward, FUSION_BYTES))


def simulate(model: str, gpus: int, network: Network = NETWORK, stragglers: SpeedVariation = STRAGGLERS) -> Outcome:
    strategy = SimulatedDdp("ring", start_seconds=CYCLE_SECONDS)
    return strategy.simulate(workload(model), Cluster(gpus, network, stragglers), STEPS, SEED)


def rows() -> Iterator[Row]:
    for (model, gpus), published in PUBLISHED.items():
        outcome = simulate(model, gpus)
        shares = {cause: 100 * seconds / outcome.seconds for cause, seconds in outcome.by_cause.items()}
        yield {
            "model": model,
            "GPUs": gpus,
            "published, %": 100 * published,
            "simulated, %": 100 * outcome.efficiency,
            "points": 100 * (outcome.efficiency - published),
            "communication, %": shares["communication"],
            "stragglers, %": shares["stragglers"],
        }


if __name__ == "__main__":
    show("Horovod on P100 GPUs", list(rows()))
