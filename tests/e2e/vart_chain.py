"""A whole file child by child, as an application for the vendor's VART does it: tensors from child to child by name.

    python vart_chain.py model.xmodel inputs.npz results.npz own|int8|float32

inputs.npz: by name, in the shapes that the file declares. Buffers: `float32` all; `int8` those of fixed tensors as int8, all others as float32 (the two types
that the vendor's Python module passes on); `own` every one in the tensor's own type (bf16 as its bits). Every output begins as 77.
"""

import sys

import numpy as np
import vart
import xir

OWN = {"xint8": "int8", "bfloat16": "uint16"}


def main(model, given, results, kind):
    """Writes all tensors that pass between children, and the names of the outputs of every child."""
    values = dict(np.load(given))
    children = []
    for child in xir.Graph.deserialize(model).get_root_subgraph().toposort_child_subgraph():
        if child.get_attr("device") == "USER":
            continue
        runner = vart.Runner.create_runner(child, "run")
        inputs = []
        for tensor in runner.get_input_tensors():
            dtype = tensor.dtype.lower()
            assert values[tensor.name].shape == tuple(tensor.dims), tensor.name
            if kind == "own":
                assert values[tensor.name].dtype.name == OWN.get(dtype, dtype), tensor.name
            inputs.append(np.ascontiguousarray(values[tensor.name]))
        outputs = []
        for tensor in runner.get_output_tensors():
            own = tensor.dtype.lower()
            fixed = kind == "int8" and own == "xint8"
            dtype = OWN.get(own, own) if kind == "own" or fixed else "float32"
            outputs.append(np.full(tuple(tensor.dims), 77, dtype))
        job = runner.execute_async(inputs, outputs)
        assert job[1] == 0 and runner.wait(job) == 0, child.get_name()
        names = [tensor.name for tensor in runner.get_output_tensors()]
        values.update(zip(names, outputs, strict=True))
        children.append(child.get_name() + ": " + ", ".join(names))
        del runner
    np.savez(results, **values, **{"/children": np.array(children)})


if __name__ == "__main__":
    main(*sys.argv[1:])
