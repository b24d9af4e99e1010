"""The instruction table: the one home of every opcode, field, width and meaning.

An instruction is 32 little-endian 32-bit words (128 bytes). Bits that an opcode does not use must be zero. From this table come the
C++ header (`generate.py`), the encoder, decoder and disassembler (`codec.py`) and `docs/isa.md`.

Engines run from their own in-order queues. Bit e of `pop` waits for (and takes) one token that engine e pushed to this engine before the
instruction starts; bit e of `push` gives one token to engine e when it has finished. Token counters are 16 bits wide.

Memory: SRAM is one byte-addressed on-chip memory. DDR has two regions: 0, the `.bin` file image (read only), 1, the pool.
A feature map in SRAM or DDR has its pixel (y, x) at address + y*row_stride + x*pixel_stride, with 16*channel_blocks lanes of int8, or of bf16
(2 bytes) where the instruction's name ends in _BF16. Those exist on an arch with the feature `bf16` only; LOAD, STORE and COPY move bytes of either.

`ISA_VERSION` counts changes of instructions that exist; instructions that come with a feature of the arch leave it alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

ISA_VERSION = 2
INSTRUCTION_WORDS = 32
INSTRUCTION_BYTES = 4 * INSTRUCTION_WORDS


class Engine(IntEnum):
    """Instruction queues; the value is the bit in `pop` and `push`."""

    LOAD = 0
    CONV = 1
    VECTOR = 2
    STORE = 3


class Region(IntEnum):
    """DDR regions addressed by LOAD and STORE."""

    BIN = 0
    POOL = 1


class Stage(IntEnum):
    """Output stage kinds (npuforge.compile.ir.quantization.OutputStage)."""

    PWL = 0
    TABLE = 1
    DIRECT = 2


class EltwiseKind(IntEnum):
    """Two-operand functions; AFFINE has one operand and the addend K."""

    ADD = 0
    SUB = 1
    MUL = 2
    AFFINE = 3


class PoolKind(IntEnum):
    """Pooling functions."""

    MAX = 0
    AVERAGE = 1


@dataclass(frozen=True)
class Field:
    """`width` bits of word `word` from bit `lsb`; two's complement if `signed`."""

    name: str
    word: int
    lsb: int
    width: int
    signed: bool = False
    doc: str = ""


def _f(name: str, word: int, lsb: int = 0, width: int = 32, *, signed: bool = False, doc: str = "") -> Field:
    return Field(name, word, lsb, width, signed, doc)


HEADER = (
    _f("opcode", 0, 0, 8),
    _f("pop", 0, 8, 4, doc="wait mask, one bit per engine"),
    _f("push", 0, 12, 4, doc="signal mask, one bit per engine"),
)
STAGE_BF16 = (
    _f("stage", 0, 16, 2, doc="0 pwl, 1 table"),
    _f("tail_low_is_input", 0, 22, 1),
    _f("tail_high_is_input", 0, 23, 1),
    _f("tail_low", 1, 0, 16, doc="bf16 value below -8 (table stage)"),
    _f("tail_high", 1, 16, 16, doc="bf16 value from 8 on (table stage)"),
    _f("record_addr", 16, doc="SRAM: 16 bytes a lane, see BF16_RECORD"),
    _f("table_addr", 17, doc="SRAM: float32 c0[256], c1[256], c2[256] (table stage)"),
)
REGION = (_f("region", 0, 24, 8, doc="0 .bin image, 1 pool"),)
STAGE = (
    _f("stage", 0, 16, 2, doc="0 pwl, 1 table, 2 direct"),
    _f("fraction_bits", 0, 18, 4, doc="F of the table stage, 5..11"),
    _f("tail_low_is_input", 0, 22, 1),
    _f("tail_high_is_input", 0, 23, 1),
    _f("tail_low", 1, 0, 16, signed=True, doc="table value below -8"),
    _f("tail_high", 1, 16, 16, signed=True, doc="table value from 8 on"),
    _f("requant_addr", 16, doc="SRAM: 8 bytes a lane, see REQUANT_RECORD"),
    _f("table_addr", 17, doc="SRAM: 257 int16 (table stage)"),
)
INPUT = (
    _f("in_addr", 2, doc="SRAM address of the first row held"),
    _f("in_row_stride", 3),
    _f("in_pixel_stride", 4),
)
INPUT_SIZE = (
    _f("in_h", 5, 0, 16, doc="rows held; a row outside 0..in_h-1 is border"),
    _f("in_w", 5, 16, 16),
)
WINDOW = (
    _f("kernel_h", 7, 0, 16),
    _f("kernel_w", 7, 16, 16),
    _f("stride_h", 8, 0, 8),
    _f("stride_w", 8, 8, 8),
    _f("dilation_h", 8, 16, 8),
    _f("dilation_w", 8, 24, 8),
    _f(
        "pad_top",
        9,
        0,
        16,
        signed=True,
        doc="input row = out row*stride_h - pad_top + tap*dilation_h; negative for lower bands",
    ),
    _f("pad_left", 9, 16, 16, signed=True),
)
OUTPUT = (
    _f("out_h", 10, 0, 16),
    _f("out_w", 10, 16, 16),
    _f("out_addr", 11),
    _f("out_row_stride", 12),
    _f("out_pixel_stride", 13),
)
OPERAND_B = (
    _f("b_addr", 19),
    _f("b_row_stride", 20, doc="0: broadcast over H"),
    _f("b_pixel_stride", 21, doc="0: broadcast over W"),
    _f("operand_addr", 22, doc="SRAM: OPERAND_RECORD a lane"),
)
BLOCKS_IN = (_f("blocks_in", 6, 0, 16, doc="input blocks of 16 lanes"),)
BLOCKS_OUT = (_f("blocks_out", 6, 16, 16, doc="output blocks of 16 lanes"),)
TRANSFER = (
    _f("ddr_addr", 2, doc="byte offset in the region"),
    _f("ddr_row_stride", 3),
    _f("ddr_col_stride", 4),
    _f("rows", 5, 0, 16),
    _f("cols", 5, 16, 16),
    _f("chunk", 6, doc="bytes per (row, col), a multiple of 16"),
    _f("sram_addr", 11),
    _f("sram_row_stride", 12),
    _f("sram_col_stride", 13),
)


@dataclass(frozen=True)
class Instruction:
    """One opcode: engine, fields after the header, and its meaning as numpy-style pseudo-code."""

    name: str
    opcode: int
    engine: Engine
    fields: tuple[Field, ...]
    meaning: str

    @property
    def all_fields(self) -> tuple[Field, ...]:
        """Header and own fields."""
        return HEADER + self.fields


# Parameter records, little-endian, one per lane.
REQUANT_RECORD = (
    ("m0", "int16", "pwl: m_pos; table: M1"),
    ("m1", "int16", "pwl: m_neg; table: M2"),
    ("s0", "int8", "pwl, direct: shift 0..47; table: S1"),
    ("z", "int8", "output zero point"),
    ("a", "int8", "pwl, direct: low; table: S2"),
    ("b", "int8", "pwl, direct: high; table: 0"),
)
OPERAND_RECORD = (
    ("ma", "int16", "multiplier of operand a (mul, affine: the only one)"),
    ("mb", "int16", "multiplier of operand b"),
    ("za", "int8", "zero point of a (average pool: of the input)"),
    ("zb", "int8", "zero point of b"),
    ("reserved", "int16", "0"),
)
RESIZE_RECORD = (
    ("i0", "int16", "first source coordinate, relative to the rows or columns held"),
    ("i1", "int16", "second source coordinate"),
    ("w1", "int16", "weight of i1 in 1/256; w0 = 256 - w1; nearest: 0"),
    ("reserved", "int16", "0"),
)
BF16_RECORD = (
    ("bias", "float32", "added to the sum, last"),
    ("slope", "float32", "pwl: factor of negative values"),
    ("low", "float32", "lower limit"),
    ("high", "float32", "upper limit; where it equals the lower one the lane is that constant"),
)
RESIZE_BF16_RECORD = (
    ("i0", "int16", "first source coordinate, relative to the rows or columns held"),
    ("i1", "int16", "second source coordinate"),
    ("w1", "float32", "weight of i1, 0..1; w0 = 1 - w1"),
)

INSTRUCTIONS: tuple[Instruction, ...] = (
    Instruction("HALT", 0x00, Engine.LOAD, (), "end of the program; always the last instruction, exactly once"),
    Instruction(
        "LOAD",
        0x10,
        Engine.LOAD,
        REGION + TRANSFER,
        "for r in rows, c in cols: sram[sram_addr + r*sram_row_stride + c*sram_col_stride :][:chunk] = "
        "ddr[region][ddr_addr + r*ddr_row_stride + c*ddr_col_stride :][:chunk]",
    ),
    Instruction(
        "LOAD_FOLD",
        0x11,
        Engine.LOAD,
        (
            *REGION,
            _f("ddr_addr", 2, doc="first byte of the whole image, tight NHWC (pixel stride = channels bytes)"),
            _f("ddr_row_stride", 3, doc="bytes"),
            *INPUT_SIZE,
            _f("channels", 6, 0, 16, doc="1..4"),
            *BLOCKS_OUT,
            *WINDOW,
            *OUTPUT,
            _f("pad_bytes", 18, doc="border byte of channel c in bits 8c..8c+7"),
        ),
        "lane l of out(y, x), l < kernel_h*kernel_w*channels: (ky, kx, c) = unravel(l); iy = y*stride_h - pad_top + ky; "
        "ix = x*stride_w - pad_left + kx; ddr[iy, ix, c] inside 0..in_h-1, 0..in_w-1, else pad byte c; other lanes 0. Dilations are 1",
    ),
    Instruction(
        "LOAD_FOLD_BF16",
        0x12,
        Engine.LOAD,
        (
            *REGION,
            _f("ddr_addr", 2, doc="first byte of the whole image, tight NHWC (pixel stride = 2*channels bytes)"),
            _f("ddr_row_stride", 3, doc="bytes"),
            *INPUT_SIZE,
            _f("channels", 6, 0, 16, doc="1..4"),
            *BLOCKS_OUT,
            *WINDOW,
            *OUTPUT,
        ),
        "as LOAD_FOLD with lanes of bf16; the border is +0",
    ),
    Instruction(
        "CONV",
        0x20,
        Engine.CONV,
        (
            *STAGE,
            *INPUT,
            *INPUT_SIZE,
            *BLOCKS_IN,
            *BLOCKS_OUT,
            *WINDOW,
            *OUTPUT,
            _f("weight_addr", 14, doc="SRAM: int8 [16*blocks_out, kernel_h, kernel_w, 16*blocks_in]"),
            _f("bias_addr", 15, doc="SRAM: int32 a lane"),
            _f("pad_addr", 18, doc="SRAM: border byte of every input lane, 16*blocks_in bytes"),
            *OPERAND_B,
            _f("sum_requant_addr", 23, doc="SRAM: REQUANT_RECORD a lane of the sum"),
            _f("residual", 24, 0, 1, doc="1: the sum with b follows; 0: all fields of b and of the sum are 0"),
            _f("sum_stage", 24, 1, 2, doc="stage of the sum: 0 pwl, 2 direct"),
        ),
        "acc[y,x,o] = bias[o] + sum w[o,ky,kx,i]*in(y*stride_h - pad_top + ky*dilation_h, x*stride_w - pad_left + kx*dilation_w, i), border = pad[i]; "
        "a = stage(acc), pwl or table, an int8. residual 0: out(y,x,o) = a. residual 1: out(y,x,o) = sum_stage(ma*(a-za) + mb*(b(y,x,o)-zb)), "
        "as ELTWISE add; out may lie on b",
    ),
    Instruction(
        "CONV_BF16",
        0x21,
        Engine.CONV,
        (
            *STAGE_BF16,
            *INPUT,
            *INPUT_SIZE,
            *BLOCKS_IN,
            *BLOCKS_OUT,
            *WINDOW,
            *OUTPUT,
            _f("weight_addr", 14, doc="SRAM: bf16 [16*blocks_out, kernel_h, kernel_w, 16*blocks_in]"),
        ),
        "acc = +0; for ky, kx, block: acc += tree(w[o,ky,kx,lane]*in(row, column, lane)) over the block's 16 lanes, products outside the map and with zero weights +0; "
        "out = stage_bf16(acc). tree: (0,1)(2,3).. four times",
    ),
    Instruction(
        "DEPTHWISE",
        0x30,
        Engine.VECTOR,
        (
            *STAGE,
            *INPUT,
            *INPUT_SIZE,
            *BLOCKS_OUT,
            *WINDOW,
            *OUTPUT,
            _f("weight_addr", 14, doc="SRAM: int8 [kernel_h, kernel_w, 16*blocks_out]"),
            _f("bias_addr", 15, doc="SRAM: int32 a lane"),
            _f("pad_addr", 18, doc="SRAM: border byte of every lane"),
        ),
        "as CONV with lane o reading lane o only",
    ),
    Instruction(
        "POOL",
        0x31,
        Engine.VECTOR,
        (
            _f("kind", 0, 24, 8, doc="0 max, 1 average"),
            *INPUT,
            *INPUT_SIZE,
            *BLOCKS_OUT,
            *WINDOW,
            *OUTPUT,
            _f(
                "weight_addr",
                14,
                doc="average: SRAM int16 [counts, 16*blocks_out], row n-1 for n valid taps, row 0 only if `single`",
            ),
            _f("requant_addr", 16, doc="average: z of every lane"),
            _f("operand_addr", 19, doc="average: za of every lane"),
            _f("shift", 20, 0, 8, doc="average: S"),
            _f("single", 20, 8, 1, doc="average: every window has the same count"),
        ),
        "max: border taps count as -128. average: n valid taps, y = sat8((((sum q - n*za)*M[n][c] + 2^(S-1)) >> S) + z)",
    ),
    Instruction(
        "ELTWISE",
        0x32,
        Engine.VECTOR,
        (
            *STAGE,
            _f("kind", 0, 24, 2, doc="0 add, 1 sub, 2 mul, 3 affine"),
            _f("broadcast_b", 0, 26, 1, doc="b has one channel, at b_addr exactly"),
            *INPUT,
            *BLOCKS_OUT,
            *OUTPUT,
            *OPERAND_B,
            _f("bias_addr", 15, doc="affine: SRAM int32 K a lane"),
        ),
        "add, sub: d = ma*(a-za) +- mb*(b-zb); mul: d = (a-za)*(b-zb)*ma; affine: d = ma*(a-za) + K; out = stage(d)",
    ),
    Instruction(
        "RESIZE",
        0x33,
        Engine.VECTOR,
        (
            *INPUT,
            *INPUT_SIZE,
            *BLOCKS_OUT,
            *OUTPUT,
            _f("row_table_addr", 14, doc="SRAM: RESIZE_RECORD per output row"),
            _f("col_table_addr", 15, doc="SRAM: RESIZE_RECORD per output column"),
        ),
        "out(y,x) = (sum wy*wx*in(iy, ix) + 2^15) >> 16 over the two rows and two columns of the records",
    ),
    Instruction(
        "COPY",
        0x34,
        Engine.VECTOR,
        (*INPUT, *BLOCKS_OUT, *OUTPUT),
        "out(y,x,lane) = in(y,x,lane) for out_h rows, out_w columns, 16*blocks_out lanes",
    ),
    Instruction(
        "DEPTHWISE_BF16",
        0x38,
        Engine.VECTOR,
        (
            *STAGE_BF16,
            *INPUT,
            *INPUT_SIZE,
            *BLOCKS_OUT,
            *WINDOW,
            *OUTPUT,
            _f("weight_addr", 14, doc="SRAM: bf16 [kernel_h, kernel_w, 16*blocks_out]"),
        ),
        "acc = +0; for ky, kx: acc += w[ky,kx,lane]*in(row, column, lane), products outside the map and with zero weights +0; out = stage_bf16(acc)",
    ),
    Instruction(
        "POOL_BF16",
        0x39,
        Engine.VECTOR,
        (
            _f("kind", 0, 24, 8, doc="0 max, 1 average"),
            *INPUT,
            *INPUT_SIZE,
            *BLOCKS_OUT,
            *WINDOW,
            *OUTPUT,
            _f(
                "weight_addr",
                14,
                doc="average: SRAM float32 [counts], entry n-1 for n valid taps, entry 0 only if `single`",
            ),
            _f("single", 20, 8, 1, doc="average: every window has the same count"),
        ),
        "max: the largest valid tap, -0 < +0, NaN above all. average: acc = +0; for ky, kx of the n valid taps: acc += in; out = bf16(acc*factor[n])",
    ),
    Instruction(
        "ELTWISE_BF16",
        0x3A,
        Engine.VECTOR,
        (
            *STAGE_BF16,
            _f("kind", 0, 24, 2, doc="0 add, 1 sub, 2 mul, 3 affine"),
            _f("broadcast_b", 0, 26, 1, doc="b has one channel, at b_addr exactly"),
            *INPUT,
            *BLOCKS_OUT,
            *OUTPUT,
            _f("b_addr", 19),
            _f("b_row_stride", 20, doc="0: broadcast over H"),
            _f("b_pixel_stride", 21, doc="0: broadcast over W"),
            _f("operand_addr", 22, doc="affine: SRAM float32 factor a lane"),
        ),
        "d = a + b, a - b, a*b or a*factor; out = stage_bf16(d)",
    ),
    Instruction(
        "RESIZE_BF16",
        0x3B,
        Engine.VECTOR,
        (
            *INPUT,
            *INPUT_SIZE,
            *BLOCKS_OUT,
            *OUTPUT,
            _f("row_table_addr", 14, doc="SRAM: RESIZE_BF16_RECORD per output row"),
            _f("col_table_addr", 15, doc="SRAM: RESIZE_BF16_RECORD per output column"),
        ),
        "mix(p, q, w1) = p where w1 = 0, else (1 - w1)*p + w1*q; each of the two rows mixes its two columns, then the rows are mixed",
    ),
    Instruction(
        "STORE",
        0x40,
        Engine.STORE,
        REGION + TRANSFER,
        "for r in rows, c in cols: ddr[region][...][:chunk] = sram[...][:chunk]; region must be 1",
    ),
)

BY_NAME = {i.name: i for i in INSTRUCTIONS}
BY_OPCODE = {i.opcode: i for i in INSTRUCTIONS}
BF16_SUFFIX = "_BF16"


def needs_bf16(name: str) -> bool:
    """Whether the instruction exists only on an arch with the feature `bf16`."""
    return name.endswith(BF16_SUFFIX)
