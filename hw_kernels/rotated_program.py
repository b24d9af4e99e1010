"""The overlap of rotated boxes as part of an array program of the NPU DSL: every pair of two lists, without a branch on the data.

Box a's own axes make it the rectangle |x| <= u, |y| <= v. By Green's theorem the area that it shares with b is minus the integral of clamp(y, -v, v) dx
along b's edges, counter-clockwise, over the part of each with |x| <= u: what of b lies above the rectangle adds as much on its upper edges as it takes on
its lower ones. Nothing is decided at an edge, so boxes that are equal or touch need no cases of their own.
"""

from __future__ import annotations

from npuforge.hw_kernels.dsl.array import (
    ArrayValue,
    added,
    clamp,
    part,
    reshape,
    vabs,
    vadd,
    vcmpsel,
    vcos,
    vdiv,
    vmaxs,
    vmin,
    vmins,
    vmul,
    vmuls,
    vsin,
    vsub,
)

_CORNERS = ((-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0))  # counter-clockwise


def pair_overlaps(a: ArrayValue, b: ArrayValue) -> ArrayValue:
    """Intersection over union [N, M] of boxes a [N, 5] and b [M, 5]; 0 where either has no area, and below a millionth, which is what rounding leaves of
    boxes that are apart."""
    ax, ay, aw, ah, at = (reshape(part(a, 1, i, i + 1), (a.shape[0], 1)) for i in range(5))
    bx, by, bw, bh, bt = (reshape(part(b, 1, i, i + 1), (1, b.shape[0])) for i in range(5))
    u, v, p, q = (vmuls(vabs(size), 0.5) for size in (aw, ah, bw, bh))
    sine, cosine = vsin(at), vcos(at)
    dx, dy = vsub(bx, ax), vsub(by, ay)
    x, y = vadd(vmul(dx, cosine), vmul(dy, sine)), vsub(vmul(dy, cosine), vmul(dx, sine))
    turn = vsub(bt, at)
    sine, cosine = vsin(turn), vcos(turn)
    corners = [
        (
            vadd(x, vsub(vmuls(vmul(cosine, p), sx), vmuls(vmul(sine, q), sy))),
            vadd(y, vadd(vmuls(vmul(sine, p), sx), vmuls(vmul(cosine, q), sy))),
        )
        for sx, sy in _CORNERS
    ]
    edges = zip(corners, corners[1:] + corners[:1], strict=True)
    shared = vmuls(added(*(_below(start, end, u, v) for start, end in edges)), -1.0)
    area_a, area_b = vmuls(vmul(u, v), 4.0), vmuls(vmul(p, q), 4.0)
    least = vmin(area_a, area_b)
    shared = vmin(vmaxs(shared, 0.0), least)
    either = vsub(vadd(area_a, area_b), shared)
    share = vcmpsel(least, 0.0, "gt", vdiv(shared, vcmpsel(least, 0.0, "gt", either, 1.0)), 0.0)
    return vcmpsel(share, 1e-6, "ge", share, 0.0)


def _below(
    start: tuple[ArrayValue, ArrayValue], end: tuple[ArrayValue, ArrayValue], u: ArrayValue, v: ArrayValue
) -> ArrayValue:
    """The integral of clamp(y, -v, v) dx along the part of an edge with |x| <= u."""
    minus_u, minus_v = vmuls(u, -1.0), vmuls(v, -1.0)
    (x0, y0), (x1, y1) = start, end
    from_x, to_x = clamp(x0, minus_u, u), clamp(x1, minus_u, u)
    from_y, to_y = (vadd(y0, vmul(vsub(y1, y0), _share(vsub(at, x0), vsub(x1, x0)))) for at in (from_x, to_x))
    low, high = clamp(from_y, minus_v, v), clamp(to_y, minus_v, v)
    # y leaves the clamp at share `first` of the way and enters it again at `last`; between them the mean is that of the ends
    first, last = (_share(vsub(at, from_y), vsub(to_y, from_y)) for at in (low, high))
    inner = vmuls(vmul(vadd(low, high), vsub(last, first)), 0.5)
    mean = added(vmul(low, first), inner, vsub(high, vmul(high, last)))
    return vmul(mean, vsub(to_x, from_x))


def _share(part_of: ArrayValue, whole: ArrayValue) -> ArrayValue:
    """part / whole in [0, 1]; 0 where the whole is 0."""
    safe = vcmpsel(whole, 0.0, "eq", 1.0, whole)
    return vmins(vmaxs(vdiv(part_of, safe), 0.0), 1.0)
