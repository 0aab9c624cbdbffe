"""Converts a program of torch.export to ExecuTorch, and runs it. A script of the environment that `make executorch` makes, which has
torch and executorch, and nothing of Lockstep.

    python on_executorch.py FOLDER

FOLDER contains program.pt2; model.pte is written there. Then each line of standard input names a file with the arrays of a batch, and
one for the output, which is there when the line `done` is written.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
from executorch.runtime import Runtime


def main(folder: Path) -> None:
    program, file = torch.export.load(folder / "program.pt2"), folder / "model.pte"
    ((example,), _) = program.example_inputs
    # The check of dtypes in ExecuTorch 1.5.1 runs the program, which fixes a language model's number of rows to that of the example.
    unchecked = EdgeCompileConfig(_check_ir_validity=False)
    # XNNPACK's kernels are those for the processors of phones; what it lacks runs on ExecuTorch's portable ones.
    lowered = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()], compile_config=unchecked).to_executorch()
    # What is compared is what was written: the file, read again.
    file.write_bytes(lowered.buffer)
    try:
        method = Runtime.get().load_program(file).load_method("forward")
    except RuntimeError:  # of an operator that it lacks
        file.unlink()
        raise
    assert method is not None
    print("done", flush=True)
    for line in sys.stdin:
        batch_file, output_file = line.split("\t")
        with np.load(batch_file) as rows:
            output = method.execute([torch.from_numpy(rows[name]) for name in example])
        np.save(output_file.strip(), output[0].numpy())
        print("done", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
