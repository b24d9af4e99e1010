"""What an application can ask the modules `xir` and `vart` about a file, as one JSON object: the same script on the vendor's modules and on ours.

    python vart_facts.py model.xmodel facts.json

Orders that XIR leaves open (it gives sets there) are by name.
"""

import json
import pathlib
import sys

import numpy as np
import vart
import xir


def tensor_facts(tensor):
    """All that is said of one tensor, and what its producer is."""
    attributes = {"fix_point": tensor.get_attr("fix_point")} if tensor.has_attr("fix_point") else {}
    return {
        "name": tensor.name,
        "dims": list(tensor.dims),
        "ndim": tensor.ndim,
        "dtype": tensor.dtype,
        "elements": tensor.get_element_num(),
        "bytes": tensor.get_data_size(),
        "text": repr(tensor),
        "producer": tensor.producer.get_name(),
        "attributes": attributes
        | {k: v for k, v in tensor.get_attrs().items() if k in ("if_signed", "bit_width", "stride")},
    }


def op_facts(op):
    """All that is said of one op; of its attributes those that every type takes."""
    arguments = {name: [source.get_name() for source in ops] for name, ops in op.get_input_ops().items()}
    first = next((name for name, ops in arguments.items() if ops), None)
    return {
        "name": op.get_name(),
        "type": op.get_type(),
        "arguments": arguments,
        "inputs": op.get_input_num(),
        "of the first": None if first is None else op.get_input_num(first),
        "first": None if first is None else op.get_input_op(first).get_name(),
        "first tensor": None if first is None else op.get_input_tensor(first, 0).name,
        "by name": [] if first is None else [t.name for t in op.get_input_tensors_by_name(first)],
        "ops by name": [] if first is None else [o.get_name() for o in op.get_input_ops_by_name(first)],
        "tensors": sorted(t.name for t in op.get_input_tensors()),
        "readers": sorted(reader.get_name() for reader in op.get_fanout_ops()),
        "fanout": op.get_fanout_num(),
        "output": tensor_facts(op.get_output_tensor()),
        "device": op.get_attr("device"),
        "attributes": sorted(op.get_attrs()),
        "graph": op.get_graph().get_name(),
        "text": repr(op),
    }


def subgraph_facts(subgraph, graph):
    """All that is said of one subgraph, but for tensors that a runner says of it."""
    ops = sorted(op.get_name() for op in subgraph.get_ops())
    inner = subgraph.depth > 1 or (subgraph.has_attr("device") and subgraph.get_attr("device") == "USER")
    child = subgraph.find_child_subgraph_by_op_name(ops[0])
    same = subgraph.find_child_subgraph_by_op(graph.get_op(ops[0]))
    producer = subgraph.get_tensor_producer(graph.get_op(ops[0]).get_output_tensor())
    facts = {
        "name": subgraph.get_name(),
        "root": subgraph.is_root,
        "leaf": subgraph.is_leaf,
        "depth": subgraph.depth,
        "above": subgraph.root.get_name(),
        "parent": None if subgraph.is_root else subgraph.get_parent().get_name(),
        "children": sorted(c.get_name() for c in subgraph.get_children()),
        "number": subgraph.get_children_num(),
        "is child": all(subgraph.is_child(c) for c in subgraph.get_children()),
        "ops": ops,
        "op number": subgraph.get_op_num(),
        "sorted": sorted(op.get_name() for op in subgraph.toposort()),
        "has": [subgraph.has_op(ops[0]), subgraph.has_op(graph.get_op(ops[-1])), subgraph.has_op("no such op")],
        "child of the first": None if child is None else [child.get_name(), same.get_name()],
        "producer": producer.get_name(),
        "graph": subgraph.get_graph().get_name(),
        "attributes": sorted(subgraph.get_attrs()),
        "values": {
            k: subgraph.get_attr(k) for k in ("device", "runner", "workload", "dpu_name") if subgraph.has_attr(k)
        },
        "text": repr(subgraph),
        "below": [subgraph_facts(c, graph) for c in sorted(subgraph.get_children(), key=lambda c: c.get_name())],
    }
    if inner:
        facts["inputs"] = sorted(t.name for t in subgraph.get_input_tensors())
        facts["outputs"] = sorted(t.name for t in subgraph.get_output_tensors())
    return facts


def runner_facts(subgraph):
    """What a runner takes and gives; buffers of another shape and plain memory in place of arrays."""
    runner = vart.RunnerExt.create_runner(subgraph, "run")
    given, made = runner.get_inputs(), runner.get_outputs()
    for number, buffer in enumerate(given):
        array = np.asarray(buffer)
        array[...] = (np.arange(array.size).reshape(array.shape) * (7 + number)) % 101 - 50
    assert runner.wait(runner.execute_async(given, made)) == 0
    flat = [np.zeros(np.asarray(buffer).size, np.asarray(buffer).dtype) for buffer in made]
    job = runner.execute_async(inputs=[np.asarray(buffer).reshape(-1) for buffer in given], outputs=flat)
    assert job[1] == 0 and runner.wait(job) == 0
    plain = [memoryview(np.zeros_like(np.asarray(buffer))) for buffer in made]
    assert runner.wait(runner.execute_async([memoryview(np.asarray(buffer)) for buffer in given], plain)) == 0
    facts = {
        side: [(t.name, list(t.dims), t.dtype, t.get_data_size(), t.get_element_num()) for t in tensors]
        for side, tensors in (("inputs", runner.get_input_tensors()), ("outputs", runner.get_output_tensors()))
    }
    facts["buffers"] = [(b.get_tensor().name, b.get_tensor().get_data_size()) for b in (*given, *made)]
    facts["sums"] = [int(np.asarray(buffer).astype(np.int64).sum()) for buffer in made]
    facts["flat"] = [int(array.astype(np.int64).sum()) for array in flat]
    facts["plain"] = [int(np.asarray(view).astype(np.int64).sum()) for view in plain]
    return facts


def main(model, results):
    """Writes the facts."""
    graph = xir.Graph.deserialize(model)
    root = graph.get_root_subgraph()
    facts = {
        "name": graph.get_name(),
        "text": repr(graph),
        "ops": {op.get_name(): op_facts(op) for op in graph.toposort()},
        "all": sorted(op.get_name() for op in graph.get_ops()),
        "number": graph.get_op_num(),
        "heads": sorted(op.get_name() for op in graph.get_head_ops()),
        "tails": sorted(op.get_name() for op in graph.get_tail_ops()),
        "tensors": sorted(t.name for t in graph.get_tensors()),
        "unknown": [graph.get_op("no such op"), graph.get_tensor("no such tensor")],
        "producers": {
            t.name: graph.get_tensor_producer(graph.get_tensor(t.name)).get_name() for t in graph.get_tensors()
        },
        "leaves": {op.get_name(): graph.get_leaf_subgraph(op).get_name() for op in graph.get_ops()},
        "origin": graph.get_attr("origin") if graph.has_attr("origin") else None,
        "attributes": sorted(graph.get_attrs()),
        "return": graph.get_attr("return_ops"),
        "subgraphs": subgraph_facts(root, graph),
        "in order": [c.get_name() for c in root.toposort_child_subgraph()],
        "runners": {
            c.get_name(): runner_facts(c)
            for c in root.toposort_child_subgraph()
            if c.get_attr("device").upper() == "DPU"
        },
    }
    pathlib.Path(results).write_text(json.dumps(facts, indent=1, sort_keys=True), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
