"""Measures training on all GPUs of one machine.

    python -m benchmarks.gpu.training [--small] [--results FOLDER]

1. NCCL: an all-reduce over all GPUs, verified and timed.
2. ResNet-50, a perceptron of 100 M parameters and GPT-2 in several precisions, plain and compiled: rows/s, beside a script by hand
   whose rows are on the device; the share of time that steps wait for data, kept there too or streamed from Parquet (through pinned
   memory, on a separate stream); and the model FLOPs utilization (MFU).
3. The same loop in a whole run under Ray Train with MLflow, in bf16: the share of a step that reports and tracking take.

`--small` is for tests and for machines without a GPU: it trains small models on CPUs with two workers, one of them in a whole run.
"""

import argparse
import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist
from mlflow import MlflowClient
from torch.multiprocessing import start_processes

from benchmarks.gpu.loop import Measured, all_reduced_bytes_per_second, join, measure
from benchmarks.gpu.models import HALF, Model, Variant, choose
from benchmarks.report import RESULTS, Row, package_versions, save, show
from pipelines.launch.training_run import train

# Dense FLOP/s, from the vendor's data sheets. fp32 is without TF32, in which torch multiplies convolutions alone by default: so the MFU
# of ResNet-50 in fp32 is of another peak, and too high.
PEAKS = {
    "H200": {"fp32": 67e12, "bf16": 989e12, "fp16": 989e12},
    "H100": {"fp32": 67e12, "bf16": 989e12, "fp16": 989e12},
    "A100": {"fp32": 19.5e12, "bf16": 312e12, "fp16": 312e12},
    "L4": {"fp32": 30.3e12, "bf16": 121e12, "fp16": 121e12},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--models", nargs="*", default=[], help="measure only those whose name contains one of these")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    gpus = torch.cuda.device_count()
    if not gpus and not arguments.small:
        parser.error("this machine has no GPU that torch can use; --small runs the same code on CPUs")
    try:
        models = choose(arguments.small, arguments.models)
    except ValueError as error:
        parser.error(f"--models: {error}")
    device, workers = (torch.cuda.get_device_name(0), gpus) if gpus else ("processor", 2)
    with tempfile.TemporaryDirectory(prefix="gpu-", dir="/tmp") as folder:
        for number, model in enumerate(models.values()):
            model.write(model.config(Path(folder) / str(number)))
        start_processes(_worker, (workers, folder, models), workers, start_method="forkserver")
        results = json.loads((Path(folder) / "results.json").read_text())
        shares = [
            _under_ray(name, model, Path(folder) / str(number), workers, results["measured"][number])
            for number, (name, model) in enumerate(models.items())
            if not arguments.small or number == len(models) - 1
        ]
    title = f"{workers} x {device}"
    tables: dict[str, list[Row]] = {
        f"meeting of {title}": [{"collective": "all-reduce of 64 MiB", "GB/s": results["bytes_per_second"] / 1e9}],
        f"training on {title}": [
            _row(name, variant, Measured(**measured), device, workers)
            for (name, model), of_model in zip(models.items(), results["measured"], strict=True)
            for variant, measured in zip(model.variants, of_model, strict=True)
        ],
        f"reports and tracking on {title}": shares,
    }
    for heading, rows in tables.items():
        show(heading, rows)
    print(save("gpu-small" if arguments.small else "gpu", tables, package_versions("torch", "ray", "mlflow", "pyarrow"), arguments.results))


def _worker(rank: int, world_size: int, folder: str, models: dict[str, Model]) -> None:
    context = join(rank, world_size, f"file://{folder}/meeting")
    speed = all_reduced_bytes_per_second(context)
    results: list[list[dict[str, float]]] = []
    for number, (name, model) in enumerate(models.items()):
        results.append([])
        for variant in model.variants:
            measured = measure(model, variant, Path(folder) / str(number), context)
            results[-1].append(asdict(measured))
            if rank == 0:
                print(f"{name}, {variant}: {measured}", flush=True)
    if rank == 0:
        (Path(folder) / "results.json").write_text(json.dumps({"bytes_per_second": speed, "measured": results}))
    dist.destroy_process_group()


def _row(name: str, variant: Variant, measured: Measured, device: str, workers: int) -> Row:
    peak = next((peaks[variant.precision] for gpu, peaks in PEAKS.items() if gpu in device), None)
    return {
        "model": name,
        "precision": variant.precision,
        "compiled": "yes" if variant.compiled else "no",
        "rows": "on the GPU" if variant.cached else "streamed",
        "rows/s": round(measured.rows_per_second, 1),  # of half precision on a processor, less than one
        "of a script by hand": measured.rows_per_second / measured.bare_rows_per_second,
        "waiting for data": measured.data_wait_fraction,
        "MFU": peak and measured.rows_per_second * measured.flops_per_row / peak / workers,
        "steps skipped": measured.skipped_steps,
        "loss": measured.loss,
        "peak GiB": measured.peak_bytes / 2**30,
    }


def _under_ray(name: str, model: Model, folder: Path, workers: int, alone: list[dict[str, float]]) -> Row:
    """Measure a whole run as jobs/train.py does it, in bf16, compared with the same steps alone."""
    config = HALF.apply(model.config(folder), workers)
    client = MlflowClient(config.tracking.uri)
    history = client.get_metric_history(train(config).run_id, "train/rows_per_second")
    steady = [point.value for point in history if point.step > model.warm_up]
    rows_per_second, rows_per_second_alone = median(steady), alone[model.variants.index(HALF)]["rows_per_second"]
    return {
        "model": name,
        "rows/s": round(rows_per_second),
        "rows/s of the loop alone": round(rows_per_second_alone),
        "share of reports and MLflow": 1 - rows_per_second / rows_per_second_alone,
    }


if __name__ == "__main__":
    main()
