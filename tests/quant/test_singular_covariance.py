"""Sums that rounding errors made singular or indefinite never stop the quantiser: the layer is then rounded without compensation."""

from __future__ import annotations

import numpy as np
import pytest

from npuforge.quant.rounding import InputCovariance, residual_variance


@pytest.mark.parametrize("second", [-1e-30, -1.0, 0.0])
def test_matrix_without_an_inverse(second: float) -> None:
    product = np.diag([0.0, second])[np.newaxis]
    found = residual_variance(InputCovariance(np.zeros((1, 2)), product, 1))
    assert found.shape == (1, 2) and np.isfinite(found).all()


def test_independent_inputs_keep_their_variance() -> None:
    product = np.diag([4.0, 9.0])[np.newaxis]
    found = residual_variance(InputCovariance(np.zeros((1, 2)), product, 1))
    np.testing.assert_allclose(found, [[4.0, 9.0]], rtol=0.05)
