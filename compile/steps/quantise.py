"""The quantisation step: calibration statistics and weights become the integer graph; its verifier checks every parameter."""

from __future__ import annotations

import numpy as np

from npuforge.compile.context import Context
from npuforge.compile.ir.bf16 import Bf16EltwiseParams
from npuforge.compile.ir.errors import QuantisationError, VerifyError
from npuforge.compile.ir.graph import Graph
from npuforge.compile.ir.quantization import ConvParams, EltwiseParams, QGraph
from npuforge.quant.bf16 import quantize_bf16
from npuforge.quant.mixed_ranges import mixed_ranges
from npuforge.quant.quantize import quantize
from npuforge.quant.range_labels import flattened_parts


def run(graph: Graph, ctx: Context) -> QGraph:
    """The step."""
    for name, value in graph.constants.items():
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            reader = next((n.name for n in graph.nodes if name in n.inputs), "?")
            raise QuantisationError(f"node {reader}: constant {name} holds NaN or infinity; repair the model's weights")
    options = ctx.options
    if options.precision == "bf16":
        ctx.qgraph = quantize_bf16(graph)
        return ctx.qgraph
    assert ctx.statistics is not None
    qgraph = quantize(graph, ctx.statistics, options.mode, options.calibrator, options.alpha, ctx.preprocess)
    ctx.qgraph = qgraph
    mixed = mixed_ranges(qgraph, ctx.statistics)
    if options.mode == "pow2" and mixed:  # the calibrate step keeps unlike ranges apart
        raise QuantisationError(str(mixed[0]))
    ctx.note(map(str, mixed))
    if options.mode == "fine":
        ctx.note(flattened_parts(qgraph, ctx.statistics, options.alpha))
    return qgraph


def verify(qgraph: QGraph) -> None:
    """Every NPU node has parameters and every NPU tensor one scale and zero point per channel; stages fit their channels."""
    graph = qgraph.graph
    for node in graph.nodes:
        if node.device != "NPU":
            continue
        if node.name not in qgraph.params:
            raise VerifyError(f"after step 'quantise': node '{node.name}': has no integer parameters")
        for tensor in (*(t for t in node.inputs if t and t not in graph.constants), *node.outputs):
            quant, shape = qgraph.quant.get(tensor), graph.tensors[tensor].shape
            if quant is None:
                raise VerifyError(f"after step 'quantise': node '{node.name}': tensor {tensor} has no scales")
            if len(quant.scale) != shape[1] or len(quant.zero_point) != shape[1] or not (quant.scale > 0).all():
                raise VerifyError(
                    f"after step 'quantise': node '{node.name}': tensor {tensor}: scales do not fit {shape}"
                )
        params = qgraph.params[node.name]
        if isinstance(params, ConvParams | EltwiseParams | Bf16EltwiseParams):
            channels = graph.tensors[node.outputs[0]].shape[1]
            for field in ("shift", "zero_point", "m_pos", "m_neg", "low", "high", "shift2", "bias", "slope"):
                value = getattr(params.stage, field, None)
                if value is not None and len(value) != channels:
                    raise VerifyError(
                        f"after step 'quantise': node '{node.name}': {field} has {len(value)} entries for {channels} channels"
                    )
