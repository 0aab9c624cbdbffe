"""Measures training on all GPUs of one machine.

    python -m benchmarks.gpu.training [--small] [--results FOLDER]

1. NCCL: an all-reduce over all GPUs, verified and timed.
2. ResNet-50 and a perceptron of 100 M parameters in fp32, bf16 and fp16, plain and compiled: rows/s, the share of time that
   steps wait for data (from pinned memory, copied on a separate stream, without a cache), and the model FLOPs utilization
   (MFU).
3. The same loop in a whole run under Ray Train with MLflow: the share of a step that reports and tracking take.

`--small` is for tests and for machines without a GPU: it trains small models on CPUs with two workers, one of them in a whole run.
"""

import argparse
import json
import tempfile
from dataclasses import asdict
from pathlib import Path

import torch
import torch.distributed as dist
from mlflow import MlflowClient
from torch.multiprocessing import start_processes

from benchmarks.gpu.loop import Measured, Variant, all_reduced_bytes_per_second, apply_variant, join, measure
from benchmarks.report import RESULTS, Row, package_versions, save, show
from benchmarks.train.cases import Case, case_config, write_version
from pipelines.launch.run import train

# Dense FLOP/s, from the vendor's data sheets. fp32 is without TF32, which torch does not use by default.
PEAKS = {
    "H200": {"fp32": 67e12, "bf16": 989e12, "fp16": 989e12},
    "H100": {"fp32": 67e12, "bf16": 989e12, "fp16": 989e12},
    "A100": {"fp32": 19.5e12, "bf16": 312e12, "fp16": 312e12},
    "L4": {"fp32": 30.3e12, "bf16": 121e12, "fp16": 121e12},
}
RESNET = {"kind": "vision", "network": "resnet50"}
IMAGE = {"encoder": "image", "shape": [3, 224, 224]}
WIDE = {"kind": "tabular", "hidden": [5_760] * 4}
LARGE = {
    "ResNet-50": Case(RESNET, IMAGE, 1, (3, 224, 224), "uint8", 4_096, 256, 20, 60),
    "MLP, 100 M parameters": Case(WIDE, {"encoder": "identity"}, 100, (), "float32", 200_000, 4_096, 20, 60),
}
SMALL_IMAGE = {"encoder": "image", "shape": [3, 16, 16]}
SMALL = {
    "ResNet-18": Case({"kind": "vision", "network": "resnet18"}, SMALL_IMAGE, 1, (3, 16, 16), "uint8", 64, 8, 1, 2),
    "MLP": Case({"kind": "tabular", "hidden": [32]}, {"encoder": "identity"}, 8, (), "float32", 2_048, 64, 2, 20),
}
LARGE_VARIANTS = [Variant(precision, compiled) for precision in ("fp32", "bf16", "fp16") for compiled in (False, True)]
SMALL_VARIANTS = [Variant("fp32"), Variant("bf16"), Variant("fp16")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    gpus = torch.cuda.device_count()
    if not gpus and not arguments.small:
        parser.error("this machine has no GPU that torch can use; --small runs the same code on CPUs")
    cases, variants = (SMALL, SMALL_VARIANTS) if arguments.small else (LARGE, LARGE_VARIANTS)
    device, workers = (torch.cuda.get_device_name(0), gpus) if gpus else ("processor", 2)
    with tempfile.TemporaryDirectory(prefix="gpu-", dir="/tmp") as folder:
        for number, case in enumerate(cases.values()):
            write_version(case, case_config(case, Path(folder) / str(number)))
        start_processes(_worker, (workers, folder, list(cases.values()), variants), workers, start_method="forkserver")
        results = json.loads((Path(folder) / "found.json").read_text())
        alone = {name: results["measured"][number][0] for number, name in enumerate(cases)}
        places = [(name, case, Path(folder) / str(number)) for number, (name, case) in enumerate(cases.items())]
        shares = [_under_ray(name, case, place, workers, alone[name]) for name, case, place in places[-1 if arguments.small else 0 :]]
    title = f"{workers} x {device}"
    tables: dict[str, list[Row]] = {
        f"meeting of {title}": [{"collective": "all-reduce of 64 MiB", "GB/s": results["bytes_per_second"] / 1e9}],
        f"training on {title}": [
            _row(name, variant, Measured(**measured), device, workers)
            for name, of_case in zip(cases, results["measured"], strict=True)
            for variant, measured in zip(variants, of_case, strict=True)
        ],
        f"reports and tracking on {title}": shares,
    }
    for heading, rows in tables.items():
        show(heading, rows)
    print(save("gpu-small" if arguments.small else "gpu", tables, package_versions("torch", "ray", "mlflow", "pyarrow"), arguments.results))


def _worker(rank: int, world_size: int, folder: str, cases: list[Case], variants: list[Variant]) -> None:
    context = join(rank, world_size, f"file://{folder}/meeting")
    speed = all_reduced_bytes_per_second(context)
    results = [
        [asdict(measure(case, variant, Path(folder) / str(number), context)) for variant in variants] for number, case in enumerate(cases)
    ]
    if rank == 0:
        (Path(folder) / "found.json").write_text(json.dumps({"bytes_per_second": speed, "measured": results}))
    dist.destroy_process_group()


def _row(name: str, variant: Variant, measured: Measured, device: str, workers: int) -> Row:
    peak = next((peaks[variant.precision] for gpu, peaks in PEAKS.items() if gpu in device), None)
    return {
        "model": name,
        "precision": variant.precision,
        "compiled": "yes" if variant.compiled else "no",
        "rows/s": round(measured.rows_per_second),
        "waiting for data": measured.data_wait_fraction,
        "MFU": peak and measured.rows_per_second * measured.flops_per_row / peak / workers,
        "steps skipped": measured.skipped_steps,
        "loss": measured.loss,
        "peak GiB": measured.peak_bytes / 2**30,
    }


def _under_ray(name: str, case: Case, folder: Path, workers: int, alone: dict[str, float]) -> Row:
    """Measure a whole run of jobs/train.py in fp32, compared with the same steps alone."""
    config = apply_variant(case_config(case, folder), Variant("fp32"), workers)
    client = MlflowClient(config.tracking.uri)
    history = client.get_metric_history(train(config).run_id, "train/step_seconds")
    steady = [point.value for point in history if point.step > case.warm_up]
    step_seconds, alone_seconds = sum(steady) / len(steady), case.global_batch / alone["rows_per_second"]
    return {
        "model": name,
        "step, s": step_seconds,
        "loop alone, s": alone_seconds,
        "share of reports and MLflow": 1 - alone_seconds / step_seconds,
    }


if __name__ == "__main__":
    main()
