"""Integer arithmetic against exact rational arithmetic (`fractions`) and hand calculations."""

from fractions import Fraction
from math import floor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuforge.compile.ir.graph import Activation
from npuforge.compile.ir.quantization import OutputStage, Tail
from npuforge.hw_kernels import arithmetic as a
from npuforge.hw_kernels.activations import CURVES, curve, is_supported

INT32 = st.integers(-(2**31), 2**31 - 1)
INT16 = st.integers(-32768, 32767)
INT8 = st.integers(-128, 127)
SHIFT = st.integers(0, 47)


def exact_shift(value: int, shift: int) -> int:
    """floor(value/2^S + 1/2), the real number rounded half up."""
    return floor(Fraction(value, 2**shift) + (Fraction(1, 2) if shift else 0))


def clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


@given(st.floats(-1e12, 1e12))
def test_round_half_up_is_exact(x: float) -> None:
    assert a.round_half_up(x) == floor(Fraction(x) + Fraction(1, 2))


@pytest.mark.parametrize(
    ("x", "expected"),
    [(0.5, 1), (-0.5, 0), (1.5, 2), (-1.5, -1), (2.5, 3), (0.49999999999999994, 0), (-0.50000000000000011, -1)],
)
def test_round_half_up_ties_and_neighbours(x: float, expected: int) -> None:
    assert a.round_half_up(x) == expected


@given(st.integers(-(2**47), 2**47), SHIFT)
def test_rounding_shift(value: int, shift: int) -> None:
    assert a.rounding_shift(np.array([value]), np.array([shift]))[0] == exact_shift(value, shift)


@given(st.lists(st.floats(-40000, 40000), min_size=1, max_size=3))
def test_factor_shift_is_the_largest(factors: list[float]) -> None:
    def fits(shift: int) -> bool:
        return all(floor(Fraction(abs(m)) * 2**shift + Fraction(1, 2)) <= 32767 for m in factors)

    expected = max((s for s in range(48) if fits(s)), default=-1)
    found = int(a.factor_shift(np.array(factors)[:, None])[0])
    assert found == expected
    if found >= 0:
        for m, integer in zip(factors, a.multiplier(np.array(factors), np.array(found)), strict=True):
            magnitude = floor(Fraction(abs(m)) * 2**found + Fraction(1, 2))
            assert int(integer) == (magnitude if m >= 0 else -magnitude)


def test_factor_shift_at_the_limit() -> None:
    # 32767.5 rounds to 32768: no shift; just below fits with S = 0; 0.5 fits with S = 15 (0.5*2^15 = 16384, 2^16 would be 32768)
    assert a.factor_shift(np.array([[32767.5, np.nextafter(32767.5, 0), 0.5, 0.0]])).tolist() == [-1, 0, 15, 47]


def test_multiplier_refuses_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="16 bits"):
        a.multiplier(np.array([1.0]), np.array([15]))


@given(INT32, INT16, INT16, SHIFT, INT8, INT8, INT8)
def test_pwl_stage(acc: int, m_pos: int, m_neg: int, shift: int, z: int, low: int, high: int) -> None:
    low, high = min(low, high), max(low, high)
    stage = OutputStage(
        "pwl",
        np.array([shift], np.int8),
        np.array([z], np.int8),
        m_pos=np.array([m_pos], np.int16),
        m_neg=np.array([m_neg], np.int16),
        low=np.array([low], np.int8),
        high=np.array([high], np.int8),
    )
    expected = clamp(exact_shift(acc * (m_neg if acc < 0 else m_pos), shift) + z, low, high)
    assert a.apply_stage(np.array([[acc]], np.int64), stage)[0, 0] == expected


@given(INT32, SHIFT, INT8)
def test_direct_stage(d: int, shift: int, z: int) -> None:
    stage = OutputStage("direct", np.array([shift], np.int8), np.array([z], np.int8))
    assert a.apply_stage(np.array([d]), stage)[0] == clamp(exact_shift(d, shift) + z, -128, 127)


@given(
    INT32, INT16, SHIFT, INT16, SHIFT, INT8, st.integers(5, 11), st.integers(0, 2**32 - 1), st.booleans(), st.booleans()
)
def test_table_stage(
    acc: int, m1: int, s1: int, m2: int, s2: int, z: int, bits: int, seed: int, low_is_input: bool, high_is_input: bool
) -> None:
    table = np.random.default_rng(seed).integers(-32768, 32768, 257).astype(np.int16)
    stage = OutputStage(
        "table",
        np.array([s1], np.int8),
        np.array([z], np.int8),
        m_pos=np.array([m1], np.int16),
        m_neg=np.array([m2], np.int16),
        shift2=np.array([s2], np.int8),
        table=table,
        fraction_bits=bits,
        tail_low=Tail(low_is_input, -77),
        tail_high=Tail(high_is_input, 99),
    )
    t = clamp(exact_shift(acc * m1, s1), -32768, 32767)
    if t < -8 * 2**bits:
        u = t if low_is_input else -77
    elif t >= 8 * 2**bits:
        u = t if high_is_input else 99
    else:
        k, r = divmod(t, 2 ** (bits - 4))
        left, right = int(table[k + 128]), int(table[k + 129])
        u = left + exact_shift((right - left) * r, bits - 4)
    assert a.apply_stage(np.array([[acc]]), stage)[0, 0] == clamp(exact_shift(u * m2, s2) + z, -128, 127)


def test_table_worked_by_hand() -> None:
    # SiLU, F = 8: T[16] = silu(1)*256 = 0.7310586*256 = 187.15 -> 187; T[17] = silu(1.0625) = 1.0625*0.743168*256 = 202.14 -> 202
    table = a.build_table(curve(Activation("Silu")).function, 8)
    assert table.shape == (257,) and table.dtype == np.int16
    assert (table[128], table[128 + 16], table[128 + 17]) == (0, 187, 202)
    # t = 1.03125*256 = 264: k = 16, r = 8 of 16: 187 + ((15*8 + 8) >> 4) = 187 + 8 = 195
    low, high = curve(Activation("Silu")).tails(8)
    t = np.array([264, -2048, -2049, 2047, 2048, 32767])
    u = a.interpolate(t, table, 8, low, high)
    assert u[0] == 195
    assert u[1] == table[0] == -1  # silu(-8)*256 = -0.687 -> -1
    assert u[2] == 0 and u[4] == 2048 and u[5] == 32767
    assert u[3] == 2046  # T[255] = 2031, T[256] = 2047, r = 15: 2031 + ((16*15 + 8) >> 4) = 2031 + 15


def test_tails_of_all_curves() -> None:
    # DESIGN section 4: F = 8; 0.1*256 = 25.6 -> 26; 0.9*256 = 230.4 -> 230
    constants = {"Sigmoid": (0, 256), "HardSigmoid": (0, 256), "Tanh": (-256, 256), "ClipSigmoid": (26, 230)}
    constants["Erf"] = (-256, 256)
    for name in CURVES:
        low, high = curve(Activation(name)).tails(8)
        if name in constants:
            assert (low, high) == (Tail(False, constants[name][0]), Tail(False, constants[name][1])), name
        else:
            assert (low, high) == (Tail(False, 0), Tail(True, 0)), name


def test_tails_of_elu() -> None:
    assert curve(Activation("Elu", alpha=1.3)).tails(8) == (Tail(False, -333), Tail(True, 0))  # 1.3*256 = 332.8
    assert curve(Activation("Elu", alpha=15.0)).tails(11) == (Tail(False, -30720), Tail(True, 0))
    assert is_supported(Activation("Elu", alpha=15.0)) and not is_supported(Activation("Elu", alpha=15.5))


@pytest.mark.parametrize(("largest", "bits"), [(0.0, 11), (15.99, 11), (16.0, 10), (31.9, 10), (700.0, 5), (5000.0, 5)])
def test_fraction_bits(largest: float, bits: int) -> None:
    assert a.choose_fraction_bits(largest) == bits


@pytest.mark.parametrize("name", sorted(CURVES))
def test_table_is_close_to_the_curve(name: str) -> None:
    activation = Activation(name, alpha=1.0 if name == "Elu" else 0.2, beta=0.5)
    bent = curve(activation)
    bits = 11
    low, high = bent.tails(bits)
    t = np.arange(-(12 << bits), 12 << bits)
    u = a.interpolate(t, a.build_table(bent.function, bits), bits, low, high)
    exact = bent.function(t / 2.0**bits)
    if name == "SiluPolynomial":  # at 8 itself, where it jumps to x, the table takes the upper side
        assert exact[t == 8 << bits] == pytest.approx(7.8028, abs=1e-4)
        exact[t == 8 << bits] = 8.0
    # half a step of table rounding and half of interpolation rounding, plus h^2/8*max|f''| with h = 1/16 (|f''| <= 1.2),
    # or the kink's h/4*slope for the hard functions; beyond the edge the tail's own distance
    bound = 1.0 / 2**bits + 1.2 / (16**2 * 8) + 0.0028
    if name in ("HardSwish", "HardSigmoid", "ClipSigmoid"):
        bound += 1.0 / 64
    assert np.abs(u / 2.0**bits - exact).max() <= bound
