"""What the `.bin` says of the NPU children of an `.xmodel`: where parameters and tensors lie, and the children's attributes.

`mc_code` = the partition's slice of the instruction stream; `reg_id_to_parameter_value["REG_0"]` = the whole `.bin` (DDR region 0; constants' `ddr_addr` is
their offset in it); REG_1 = the pool (region 1; border tensors' `ddr_addr` and `stride` in bytes, which are elements); `npuforge_instructions` =
[first, count]; `dpu_name`, `dpu_fingerprint` = the arch's; `runner` = our library.
"""

from __future__ import annotations

from typing import Any

from npuforge.compile.ir.errors import VerifyError
from npuforge.compile.xir.builder import RUNNER_LIBRARY, RUNNER_MODES, integer, integers, string
from npuforge.compile.xir.model import Attr, Attrs
from npuforge.hw_kernels.isa.binfile import BinFile
from npuforge.hw_kernels.isa.instructions import INSTRUCTION_BYTES


class Places:
    """Of one `.bin`. meta: its meta section; layers: the layers in it, by node name."""

    def __init__(self, binary: BinFile) -> None:
        self.binary = binary
        self.meta: dict[str, Any] = binary.json()
        self.layers: dict[str, dict[str, Any]] = {layer["name"]: layer for layer in self.meta.get("layers", [])}

    def storage(self, layer: str, kind: str) -> Attrs:
        """Where a layer's parameters lie in the `.bin`."""
        section = self.binary.sections.get(f"{self.layers.get(layer, {}).get('id', '')}_{kind}")
        if section is None:
            return {}
        return {"reg_id": integer(0), "ddr_addr": integer(section.offset), "location": integer(1)}

    def pool(self, name: str) -> Attrs:
        """Where a border tensor lies in the pool."""
        stored = self.meta["tensors"].get(name, {}).get("npu")
        if stored is None:
            raise VerifyError(f"writing the .xmodel: the .bin has no place for the border tensor {name!r}")
        row, pixel = int(stored["row_stride"]), int(stored["pixel_stride"])
        stride = integers([int(stored["h"]) * row, row, pixel, 1])
        return {"reg_id": integer(1), "ddr_addr": integer(stored["offset"]), "location": integer(1), "stride": stride}

    def trace(self, layer: str) -> Attrs:
        """Where a layer's output inside of a partition lies: DDR pool (location 1) or on chip (location 0)."""
        trace = self.layers.get(layer, {}).get("trace") or {}
        if trace.get("space") != "pool":
            return {"location": integer(0)}
        row = int(trace["row_stride"])
        return {
            "reg_id": integer(1),
            "ddr_addr": integer(trace["address"]),
            "location": integer(1),
            "npuforge_row_stride": integer(row),
        }

    def npu_attrs(self, stored: dict[str, Any], order: list[str]) -> Attrs:
        """Attributes of a partition's child. stored: the partition in the `.bin`'s meta section; order: its leaves to run."""
        first, count = int(stored["first_instruction"]), int(stored["instruction_count"])
        code = self.binary["instructions"].data[first * INSTRUCTION_BYTES : (first + count) * INSTRUCTION_BYTES]
        text = "map_string_2_string"
        return {
            "device": string("DPU"),
            "runner": Attr(text, dict.fromkeys(RUNNER_MODES, RUNNER_LIBRARY)),
            "dpu_name": string(str(self.meta["arch"]["name"])),
            "dpu_fingerprint": Attr("uint64", int(self.meta["fingerprint"], 16)),
            "mc_code": Attr("bytes", code),
            "npuforge_instructions": integers([first, count]),
            "children_topological_sort": Attr("string_vec", order),
            "reg_id_to_parameter_value": Attr("map_string_2_bytes", {"REG_0": self.binary.image}),
            "reg_id_to_context_type": Attr(text, {"REG_0": "CONST", "REG_1": "DATA"}),
            "reg_id_to_context_type_v2": Attr(text, {"REG_0": "CONST", "REG_1": "WORKSPACE"}),
            "reg_id_to_hw_segment": Attr(text, {"REG_0": "W0", "REG_1": "D0"}),
            "reg_id_to_size": Attr(
                "map_string_2_int32", {"REG_0": len(self.binary.image), "REG_1": int(self.meta["pool_size"])}
            ),
        }
