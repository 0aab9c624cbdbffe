"""Converts a program of torch.export to StableHLO, and runs it on XLA's CPU backend. A script of the environment that `make xla` makes,
which has torch, jax and torchax, and nothing of Lockstep.

    python on_xla.py FOLDER

FOLDER contains program.pt2; model.stablehlo and model.jax are written there. Then each line of standard input names a file with the
arrays of a batch, and one for the output, which is there when the line `done` is written.
"""

import sys
from pathlib import Path
from typing import Any

import jax
import jax.export
import numpy as np
import torch


def main(folder: Path) -> None:
    program = torch.export.load(folder / "program.pt2")
    exported_program_to_jax = _converter()
    weights, function = exported_program_to_jax(program)
    ((example,), _) = program.example_inputs
    shapes = {name: jax.ShapeDtypeStruct(tuple(tensor.shape), tensor.numpy().dtype) for name, tensor in example.items()}
    exported = jax.export.export(jax.jit(lambda rows: function(weights, (rows,))))(shapes)
    (folder / "model.stablehlo").write_bytes(exported.mlir_module_serialized)
    (folder / "model.jax").write_bytes(exported.serialize())
    # What is compared is what was written: the file, read again.
    model = jax.jit(jax.export.deserialize(bytearray((folder / "model.jax").read_bytes())).call)
    print("done", flush=True)
    for line in sys.stdin:
        batch_file, output_file = line.split("\t")
        with np.load(batch_file) as rows:
            output: Any = model({name: rows[name] for name in shapes})
        np.save(output_file.strip(), np.asarray(output[0] if isinstance(output, (tuple, list)) else output))
        print("done", flush=True)


def _converter() -> Any:
    """torchax's function. torchax 0.0.13 names overloads that torch 2.13 no longer has in a table for mixed precision, which is not used
    here: they are replaced by a name while it is imported."""
    packet: Any = type(torch.ops.aten.add)
    before = packet.__getattr__

    def lenient(self: Any, name: str) -> Any:
        try:
            return before(self, name)
        except AttributeError:
            if name.startswith("__"):
                raise
            return (str(self), name)

    packet.__getattr__ = lenient
    try:
        from torchax.export import exported_program_to_jax  # noqa: PLC0415, only so
    finally:
        packet.__getattr__ = before
    return exported_program_to_jax


if __name__ == "__main__":
    main(Path(sys.argv[1]))
