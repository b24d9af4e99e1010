"""Stand-in for the vendor's module `vart`: a DPU with a batch of three, and the plug-in for CPU children, both by XIR's documented float operators.

Like the original it ends the process where a runner cannot be opened or an array is not as it must be.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
from pathlib import Path

import numpy as np
import xir
from fix_form_interpreter import execute_ops

BATCH = {"libvart-dpu-runner.so": 3, "libnpuforge-runner.so": 1}
TYPES = {"xint8": np.int8, "float32": np.float32}


def fatal(text: str) -> None:
    print(f"F20261130 01:02:03.123456   77 dpu_runner.cpp:210] {text}", file=sys.stderr)
    print("*** Check failure stack trace: ***", file=sys.stderr, flush=True)
    os.abort()


class Runner:
    _jobs = itertools.count(1)

    def __init__(self, subgraph: xir.Subgraph, batch: int) -> None:
        self.subgraph, self.batch = subgraph, batch
        self.inputs, self.outputs = subgraph.tensors(batch)
        self.lock, self.waiting = threading.Lock(), set[int]()

    @staticmethod
    def create_runner(subgraph: xir.Subgraph, mode: str = "") -> Runner:
        library = subgraph.attrs["runner"].get(mode, "")
        if Path(library).name not in BATCH:
            fatal(f"Check failed: plugin cannot open library '{library}'!")
        if subgraph.attrs.get("dpu_fingerprint") == 0xBAD:
            fatal("fingerprint check failure: model fingerprint 0xbad is un-matched with actual 0x101000056010407.")
        return Runner(subgraph, BATCH[Path(library).name])

    def get_input_tensors(self) -> list[xir.Tensor]:
        return self.inputs

    def get_output_tensors(self) -> list[xir.Tensor]:
        return self.outputs

    def execute_async(self, inputs: list[np.ndarray], outputs: list[np.ndarray]) -> tuple[int, int]:
        for array, tensor in zip([*inputs, *outputs], [*self.inputs, *self.outputs], strict=True):
            flags = array.flags
            if list(array.shape) != tensor.dims or array.dtype != TYPES[tensor.dtype] or not flags.c_contiguous:
                fatal(f"Check failed: buffer of {tensor.name}")
        ops = {op.name: op for op in self.subgraph.model.ops}
        own = [ops[name] for leaf in self.subgraph.subgraph.leaves() for name in leaf.ops]
        source = {op.tensor.name: op.name for op in self.subgraph.model.ops}
        with self.lock:
            for index in range(self.batch):
                given = {
                    source[t.name]: array[index : index + 1] * 2.0**-t.fix_point
                    for array, t in zip(inputs, self.inputs, strict=True)
                }
                values = execute_ops(own, given)
                for array, tensor in zip(outputs, self.outputs, strict=True):
                    array[index] = (values[source[tensor.name]] * 2.0**tensor.fix_point)[0]
            job = next(self._jobs)
            self.waiting.add(job)
        return job, 0

    def wait(self, job: tuple[int, int]) -> int:
        self.waiting.remove(job[0])
        return 0
