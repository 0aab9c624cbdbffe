"""Published throughputs of trainings, as their pages state them, with the settings that they state.

What a page leaves open is set once for all of its runs, and said here:

- llm-foundry: Composer's DecoupledAdamW, which has a kernel for each operation, and gradients that are summed after every pass.
- torchtitan: half of the matrix products are computed again with selective checkpointing ("op", its default then), RMSNorm of torch 2.6 has
  several kernels, and a pipeline has as many microbatches as workers in it, its default.
- NeMo 24.07: kernels are fused, and the optimizer's state is divided. It has FP8 attention and kernels of its own, of which the planner
  knows nothing.
- The rows of 405 B say nothing of where degrees lie; each group of `tensor` is a machine.
"""

from dataclasses import dataclass

from pipelines.planning.hardware import Cluster, parse_clusters
from pipelines.planning.layouts import ParallelLayout, check_layout, parse_layout
from pipelines.planning.model_costs import ModelCosts
from pipelines.planning.transformer import parse_transformer

FOUNDRY = "https://github.com/mosaicml/llm-foundry/blob/main/scripts/train/benchmarking/README.md"
TITAN = "https://github.com/pytorch/torchtitan/blob/main/benchmarks/llama3_h100_202412_torchtitan.md"
TRAINY = "https://github.com/pytorch/torchtitan/blob/main/benchmarks/llama3_8b_h200_2025-06_torchtitan_trainy_whitefiber.md"
NEMO = "https://github.com/NVIDIA/NeMo/blob/main/docs/source/performance/performance_summary.md"
OURS = "measured here, benchmarks/results/gpu-1x-nvidia-h200-2026-11-27.json"


@dataclass(frozen=True)
class PublishedRun:
    """A run, its tokens/s per device, and GiB of a device's memory where stated."""

    model: ModelCosts
    cluster: Cluster
    layout: ParallelLayout
    tokens_per_second: float
    memory_gib: float | None
    source: str


FOUNDRY_RUNS = """
mpt-70b h100x512 8x1 AC 1007
mpt-70b h100x128 8x1 AC 1058
mpt-70b h100x32 2x16 AC 882
mpt-30b h100x128 8x1 AC 2199
mpt-30b h100x8 3x21 AC 2002
mpt-13b h100x512 16x1 AC 4952
mpt-13b h100x8 2x1 - 4792
mpt-7b h100x512 6x1 - 9670
mpt-7b h100x8 6x1 - 10643
mpt-3b h100x512 8x1 SGO 21664
mpt-1b h100x512 12x1 SGO 39837
mpt-1b h100x8 14x1 - 45455
mpt-760m h100x32 24x1 - 67971
"""
"""Model, devices, rows of a pass x passes, AC for activation checkpointing and SGO for SHARD_GRAD_OP, tokens/s per device."""
FURTHER_FOUNDRY_RUNS = """
mpt-70b h100x256 8x1 AC 1035
mpt-70b h100x64 8x4 AC 1039
mpt-30b h100x512 8x1 AC 2115
mpt-30b h100x32 14x3 AC 2308
mpt-30b h100x16 10x3 AC 2263
mpt-30b,sequence=4096 h100x8 1x21 AC 1802
mpt-30b,sequence=1024 h100x8 6x21 AC 2084
mpt-13b h100x128 16x1 AC 5080
mpt-13b h100x64 2x1 - 4800
mpt-13b,sequence=4096 h100x8 10x3 AC 4717
mpt-13b,sequence=1024 h100x8 40x3 AC 5502
mpt-7b h100x256 6x1 - 10119
mpt-7b h100x128 6x1 - 10475
mpt-7b,sequence=4096 h100x8 16x2 AC 8611
mpt-7b,sequence=8192 h100x8 8x2 AC 6935
mpt-7b,sequence=1024 h100x8 64x2 AC 10203
mpt-7b,sequence=32768 h100x8 2x2 AC 3318
mpt-3b h100x128 8x1 SGO 23422
mpt-3b h100x64 6x3 - 22525
mpt-3b h100x16 10x3 - 24142
mpt-3b,sequence=512 h100x8 40x6 - 27965
mpt-3b,sequence=4096 h100x8 5x6 - 20964
mpt-3b,sequence=8192 h100x8 3x6 - 16578
mpt-1b h100x128 12x1 SGO 44123
mpt-1b h100x64 20x1 - 44402
mpt-1b h100x16 20x1 - 46037
mpt-1b,sequence=512 h100x8 56x4 - 52275
mpt-1b,sequence=8192 h100x8 3x4 - 29157
mpt-760m h100x8 24x2 - 63147
mpt-760m,sequence=512 h100x8 96x2 - 83749
mpt-760m,sequence=4096 h100x8 12x2 - 55459
mpt-70b a100x64 8x4 AC 410
mpt-70b a100x32 2x16 AC 373
mpt-30b a100x8 3x21 AC 916
mpt-13b a100x8 2x3 - 2262
mpt-13b,sequence=4096 a100x8 10x3 AC 2060
mpt-7b a100x8 6x2 - 4641
mpt-7b,sequence=8192 a100x8 8x2 AC 3206
mpt-7b,sequence=512 a100_40gbx8 48x4 AC 3895
mpt-3b a100x8 10x2 - 10811
mpt-3b,sequence=8192 a100x8 3x6 - 7695
mpt-1b a100x8 14x4 - 20513
mpt-1b,sequence=512 a100x8 56x4 - 23148
mpt-760m a100x8 24x2 - 32434
mpt-350m a100x8 32x2 - 58782
mpt-125m a100x8 32x2 - 141737
mpt-70b a100_40gbx128 4x1 AC 376
mpt-30b a100_40gbx128 6x1 AC 865
mpt-30b a100_40gbx32 4x1 AC 857
mpt-13b a100_40gbx128 16x1 AC 1972
mpt-7b a100_40gbx128 18x1 AC 3623
mpt-7b a100_40gbx16 16x1 AC 3645
mpt-3b a100_40gbx128 6x1 - 9538
mpt-1b a100_40gbx128 10x1 - 18647
mpt-760m a100_40gbx128 12x1 - 28940
mpt-350m a100_40gbx128 18x1 - 51934
mpt-125m a100_40gbx128 26x1 - 123936
"""
_8B, _SAC = "llama3-8b,fused_norm=no", "checkpointing=alternate,microbatch=2"
_FP8 = "compile=true,float8=true"
_AC = f"checkpointing=full,{_FP8}"
_TP = f"tensor=8,sequence_parallel=true,{_AC}"
_405B = f"pipeline=8,microbatches=8,asynchronous_tensor=true,{_TP}"
_RING = "ring_attention=true,microbatch=1"
TITAN_RUNS = (
    (_8B, "h100_96gbx8", f"shard=8,{_SAC}", 5762, 82.4),
    (_8B, "h100_96gbx8", f"shard=8,{_SAC},compile=true", 6667, 77.0),
    (_8B, "h100_96gbx8", f"shard=8,{_SAC},{_FP8}", 8532, 76.8),
    (_8B, "h100_96gbx128", f"shard=128,{_SAC}", 5605, 67.0),
    (_8B, "h100_96gbx128", f"shard=128,{_SAC},compile=true", 6514, 62.0),
    (_8B, "h100_96gbx128", f"shard=128,{_SAC},{_FP8}", 8380, 61.8),
    (f"{_8B},sequence=32768", "h100_96gbx8", f"shard=8,microbatch=1,{_AC}", 3890, 83.9),
    (f"{_8B},sequence=65536", "h100_96gbx8", f"shard=4,context=2,{_RING},{_AC}", 2540, 84.2),
    (f"{_8B},sequence=131072", "h100_96gbx8", f"shard=2,context=4,{_RING},{_AC}", 1071, 84.0),
    (f"{_8B},sequence=262144", "h100_96gbx8", f"shard=1,context=8,{_RING},{_AC}", 548, 84.5),
    ("llama3-70b", "h100_96gbx256", f"shard=32,microbatch=16,{_TP}", 829, 71.9),
    ("llama3-70b", "h100_96gbx256", f"shard=32,microbatch=16,{_TP},asynchronous_tensor=true", 876, 67.6),
    ("llama3-405b", "h100_96gbx512", f"shard=8,microbatch=32,{_405B}", 100, 82.5),
    ("llama3-405b", "h100_96gbx512", f"shard=8,microbatch=32,{_405B},schedule=Interleaved1F1B", 128, 72.7),
)
"""Model, devices, layout, tokens/s per device, GiB."""
FURTHER_TITAN_RUNS = (
    ("llama3-405b,sequence=32768", "h100_96gbx512", f"shard=8,microbatch=8,{_405B}", 76, 75.3),
    ("llama3-405b,sequence=65536", "h100_96gbx512", f"shard=4,context=2,ring_attention=true,microbatch=8,{_405B}", 47, 75.9),
    ("llama3-405b,sequence=131072", "h100_96gbx512", f"shard=2,context=4,ring_attention=true,microbatch=8,{_405B}", 31, 77.1),
    ("llama3-405b,sequence=262144", "h100_96gbx512", f"shard=1,context=8,ring_attention=true,microbatch=8,{_405B}", 16, 84.9),
)
TRAINY_RUNS = (
    (_8B, "h200x32", f"shard=32,{_SAC},{_FP8},compile_loss=true", 10938, 47.96),
    (_8B, "h200x64", f"shard=64,{_SAC},{_FP8},compile_loss=true", 10753, 46.97),
)

NEMO_RUNS = """
layers=24,width=4096,heads=32,vocabulary=51200,sequence=2048,rotary=no,biases=yes h100x64 2048 4 1 1 1 1 22521
gpt3-175b,tied=no h100x128 256 1 4 8 1 6 726
gpt3-175b,tied=no h100x512 2048 2 4 8 1 6 782
llama2-7b h100x8 128 1 1 1 1 1 16847
llama2-13b h100x16 128 1 1 4 1 10 8646
llama2-70b h100x64 128 1 4 4 1 20 1707
llama3-8b h100x8 128 1 1 1 2 1 12036
llama3-70b h100x64 128 1 4 4 2 5 1533
"""
"""Model, devices, global batch, rows of a microbatch, TP, PP, CP, virtual stages, tokens/s per device, all in FP8."""
_GPT = "layers=12,width=768,heads=12,vocabulary=25600,sequence=1024,autocast=yes"
MEASURED_RUNS = (
    (_GPT, "h200x1", "microbatch=16,accumulation=32", 228 * 1024, 16.1),
    (_GPT, "h200x1", "microbatch=16,accumulation=32,compile=true", 373 * 1024, 13.6),
)


def runs_to_predict() -> list[PublishedRun]:
    """The runs that the planner is held to: of llm-foundry with windows of 2,048 tokens on H100, and of torchtitan."""
    return [*_foundry_runs(FOUNDRY_RUNS), *(_run(*values, TITAN) for values in TITAN_RUNS)]


def further_runs() -> list[PublishedRun]:
    """Others of the same pages, among them other windows and A100, and of H200."""
    titan = [_run(*values, TITAN) for values in FURTHER_TITAN_RUNS]
    return [*_foundry_runs(FURTHER_FOUNDRY_RUNS), *titan, *(_run(*values, TRAINY) for values in TRAINY_RUNS)]


def own_runs() -> list[PublishedRun]:
    """Runs of conf/gpt2.yaml on one GPU."""
    return [_run(*values, OURS) for values in MEASURED_RUNS]


def nemo_runs() -> list[PublishedRun]:
    """Runs of another program, in 8 bits, with kernels and an overlap of its own."""
    runs = []
    for line in NEMO_RUNS.split("\n")[1:-1]:
        model, devices, *numbers = line.split()
        batch, rows, tensor, pipeline, context, stages, tokens = map(int, numbers)
        readers = int(devices.rpartition("x")[2]) // (tensor * pipeline * context)
        per_reader = batch // readers
        text = f"replicate={readers},tensor={tensor},pipeline={pipeline},context={context},compile=true,compile_loss=true,float8=true"
        if tensor > 1:
            text += ",sequence_parallel=true"
        if pipeline > 1:
            text += f",schedule=Interleaved1F1B,virtual_stages={stages},microbatch={per_reader},microbatches={per_reader // rows}"
        else:
            text += f",microbatch={rows},accumulation={per_reader // rows}"
        runs.append(_run(model, devices, text, tokens, None, NEMO))
    return runs


def _foundry_runs(table: str) -> list[PublishedRun]:
    runs = []
    for line in table.split("\n")[1:-1]:
        model, devices, passes, mode, tokens = line.split()
        microbatch, accumulation = passes.split("x")
        settings = {"AC": ",checkpointing=full", "SGO": ",reshard_after_forward=false", "-": ""}[mode]
        shard = devices.rpartition("x")[2]
        text = f"shard={shard},microbatch={microbatch},accumulation={accumulation},reduce_every_pass=true,fused_optimizer=false{settings}"
        runs.append(_run(model, devices, text, float(tokens), None, FOUNDRY))
    return runs


def _run(model: str, devices: str, layout: str, tokens: float, memory: float | None, source: str) -> PublishedRun:
    costs, (cluster,), parsed = parse_transformer(model), parse_clusters(devices), parse_layout(layout)
    check_layout(parsed, costs, cluster.devices)
    return PublishedRun(costs, cluster, parsed, tokens, memory, source)
