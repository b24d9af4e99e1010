"""TensorFlow op library: every own operator with a CPU kernel on its cases, gradients, shape functions, tf.function, SavedModel in another process.

Run where TensorFlow is: `pip install npuforge[tensorflow]`. Building the library takes minutes, so the tests are marked `full`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contract import Subject, subjects

pytest.importorskip("tensorflow", reason="TensorFlow is not installed: pip install npuforge[tensorflow]")
import tensorflow as tf

from npuforge.compile.ir.errors import UnsupportedError
from npuforge.hw_kernels.bindings import tensorflow_ops
from npuforge.hw_kernels.levels import declared

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
    pytest.mark.usefixtures("tensorflow_library"),
]
OWN = subjects(lambda op: declared(op, "TF"))
TRAINED = [s for s in OWN if declared(s.op, "gradient") and all(0 not in np.shape(x) for x in s.inputs())]


def call(subject: Subject, *inputs: Any) -> list[Any]:
    found = tensorflow_ops.run(subject.name, *inputs, outputs=subject.case.outputs, **subject.case.attrs)
    return found if isinstance(found, list) else [found]


@pytest.mark.parametrize("subject", OWN, ids=str)
def test_forward_and_static_shape(subject: Subject) -> None:
    inputs, node = subject.inputs(), subject.graph().nodes[0]
    wide = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in inputs]
    expected = subject.op.reference(node, wide)
    for found, value in zip(call(subject, *inputs), expected, strict=True):
        np.testing.assert_allclose(found.numpy(), value, rtol=2e-5, atol=2e-5)
    signature = [tf.TensorSpec(x.shape, x.dtype) for x in inputs]
    concrete = tf.function(lambda *x: call(subject, *x)).get_concrete_function(*signature)
    for shape, value in zip(concrete.output_shapes, expected, strict=True):
        assert shape.rank == value.ndim and shape.is_compatible_with(value.shape)
        open_sizes = -1 in np.concatenate(subject.op.infer(node, [np.shape(x) for x in inputs]), axis=None)
        assert shape.is_fully_defined() != open_sizes


@pytest.mark.parametrize("subject", TRAINED, ids=str)
def test_gradient(subject: Subject) -> None:
    inputs, node = subject.inputs(), subject.graph().nodes[0]
    tensors = [tf.constant(x) for x in inputs]
    floats = [t for t in tensors if t.dtype.is_floating]
    with tf.GradientTape() as tape:
        for t in floats:
            tape.watch(t)
        outputs = call(subject, *tensors)
        weights = [tf.cast(tf.reshape(tf.range(tf.size(y)), y.shape), tf.float32) % 7 - 3 for y in outputs]
        total = tf.add_n([tf.reduce_sum(w * tf.cast(y, tf.float32)) for w, y in zip(weights, outputs, strict=True)])
    found = tape.gradient(total, floats)
    wide = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in inputs]
    gradients = subject.op.gradient(node, wide, [w.numpy().astype(np.float64) for w in weights])
    expected = [g for g, x in zip(gradients, inputs, strict=True) if x.dtype.kind == "f"]
    for dx, value in zip(found, expected, strict=True):
        if value is not None:
            np.testing.assert_allclose(dx.numpy(), value, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("subject", [s for s in TRAINED if declared(s.op, "second gradient")], ids=str)
def test_second_gradient(subject: Subject) -> None:
    """The gradient of a weighted sum of the gradients, in the inputs and in what the outputs are weighted with."""
    inputs, node, random = subject.inputs(), subject.graph().nodes[0], np.random.default_rng(6)
    tensors = [tf.constant(x) for x in inputs]
    floats = [i for i, t in enumerate(tensors) if t.dtype.is_floating]
    wide = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in inputs]
    dys = [random.normal(size=y.shape).astype(np.float32) for y in subject.op.reference(node, wide)]
    first = subject.op.gradient(node, wide, [dy.astype(np.float64) for dy in dys])
    directions = [None if g is None else random.normal(size=g.shape).astype(np.float32) for g in first]
    weights = [tf.constant(dy) for dy in dys]
    watched = [tensors[i] for i in floats] + weights
    with tf.GradientTape() as outer:
        outer.watch(watched)
        with tf.GradientTape() as inner:
            inner.watch(watched)
            outputs = call(subject, *tensors)
            total = tf.add_n([tf.reduce_sum(w * tf.cast(y, tf.float32)) for w, y in zip(weights, outputs, strict=True)])
        gradients = inner.gradient(total, [tensors[i] for i in floats])
        pairs = [(directions[i], g) for i, g in zip(floats, gradients, strict=True) if directions[i] is not None]
        total = tf.add_n([tf.reduce_sum(v * g) for v, g in pairs])
    found = outer.gradient(total, watched, unconnected_gradients="zero")
    of_inputs, of_dys = subject.op.second_gradient(node, wide, [d.astype(np.float64) for d in dys], directions)
    expected = [of_inputs[i] for i in floats] + list(of_dys)
    for value, right in zip(found, expected, strict=True):
        if right is not None:
            np.testing.assert_allclose(value.numpy(), right, rtol=2e-4, atol=2e-4)


UNKNOWN_SIZES: list[tuple[str, list[list[int | None]], dict[str, Any], list[int | None] | None]] = [
    ("npuforge::Silu", [[None, 3, None, 5]], {}, [None, 3, None, 5]),
    ("npuforge::LeakyReluMask", [[None, 4]], {"alpha": 0.1}, [None, 4]),
    ("npuforge::AlignNhwc16", [[None, 20, None, 7]], {}, [None, None, 7, 32]),
    ("npuforge::UnalignNhwc16", [[None, 4, 4, 32]], {"channels": 20}, [None, 20, 4, 4]),
    ("npuforge::AngleEncode", [[None, 3]], {"axis": 1}, [None, 6]),
    ("npuforge::AngleEncode", [[None, 3]], {"axis": 0}, [None, 3]),
    ("npuforge::RotatedIou", [[None, 5], [4, 5]], {}, [None, 4]),
    (
        "npuforge::RotatedRoiAlign",
        [[1, 8, None, None], [None, 6]],
        {"output_height": 2, "output_width": 3},
        [None, 8, 2, 3],
    ),
    (
        "npuforge::YoloDecode",
        [[1, 14, None, 4]],
        {"anchors": [10, 13, 20, 9], "strides": [8], "num_classes": 2},
        [1, None, 4],
    ),
    ("npuforge::RotatedNms", [[None, 5], [2, None]], {}, [None, 2]),
    ("Conv", [[None, 3, None, 9], [8, 3, 3, 3]], {"kernel_shape": [3, 3], "strides": [2, 2]}, [None, 8, None, 4]),
    ("Slice", [[None, None, 9]], {"starts": [1, 0], "ends": [2, 20], "axes": [0, 1]}, [None, None, 9]),
    ("Transpose", [[None, 3, 4]], {"perm": [2, 0, 1]}, [4, None, 3]),
]


@pytest.mark.parametrize(("name", "shapes", "attributes", "expected"), UNKNOWN_SIZES)
def test_unknown_dimensions_stay_unknown_and_the_others_are_known(
    name: str, shapes: list[list[int | None]], attributes: dict[str, Any], expected: list[int | None] | None
) -> None:
    outputs = {"npuforge::LeakyReluMask": 2, "npuforge::YoloDecode": 3}.get(name, 1)

    def first(*x: Any) -> Any:
        found = tensorflow_ops.run(name, *x, outputs=outputs, **attributes)
        return found[0] if outputs > 1 else found

    concrete = tf.function(first).get_concrete_function(*[tf.TensorSpec(s, tf.float32) for s in shapes])
    shape = concrete.output_shapes
    assert (None if shape.rank is None else shape.as_list()) == expected


def test_one_function_takes_every_batch() -> None:
    x = np.random.default_rng(2).normal(size=(3, 4, 6, 5)).astype(np.float32)
    traced = tf.function(
        lambda x: tensorflow_ops.run("npuforge::ClipSigmoid", tensorflow_ops.run("npuforge::Silu", x)),
        input_signature=[tf.TensorSpec([None, 4, None, None], tf.float32)],
    )
    wide = x.astype(np.float64)
    expected = np.clip(1 / (1 + np.exp(-wide / (1 + np.exp(-wide)))), 0.1, 0.9)
    for batch in (1, 3):
        np.testing.assert_allclose(traced(x[:batch]).numpy(), expected[:batch], rtol=1e-5, atol=1e-6)


def test_what_only_the_forward_pass_computes_is_refused_in_the_gradient() -> None:
    """Forward: TensorFlow's own SAME. Before this check the gradient was that of no padding."""
    x, w = (
        tf.constant(np.random.default_rng(7).normal(size=s).astype(np.float32)) for s in ((1, 2, 5, 5), (3, 2, 3, 3))
    )
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tensorflow_ops.run("Conv", x, w, kernel_shape=[3, 3], auto_pad="SAME_UPPER")
    right = tf.nn.conv2d(tf.transpose(x, [0, 2, 3, 1]), tf.transpose(w, [2, 3, 1, 0]), 1, "SAME")
    np.testing.assert_allclose(y.numpy(), tf.transpose(right, [0, 3, 1, 2]).numpy(), rtol=1e-4, atol=1e-4)
    with pytest.raises(UnsupportedError, match=r"operator Conv: attribute auto_pad=SAME_UPPER .*; give pads"):
        tape.gradient(y, x)


def test_a_misspelt_attribute_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="LeakyReluMask has no attribute alhpa; use alpha"):
        tensorflow_ops.run("npuforge::LeakyReluMask", np.zeros(2, np.float32), outputs=2, alhpa=0.1)


def test_sizes_that_only_the_data_decide() -> None:
    """Eagerly the real size, on whichever axis it lies; while tracing an unknown one."""
    x = np.array([[0, 1, 2], [3, 0, 0]], np.float32)
    np.testing.assert_array_equal(tensorflow_ops.run("NonZero", x).numpy(), np.array(np.nonzero(x)))
    every_other = np.array([True, False, True])
    for axis in (1, -1):
        found = tensorflow_ops.run("Compress", x, every_other, axis=axis)
        np.testing.assert_array_equal(found.numpy(), x[:, every_other])
    traced = tf.function(lambda x: tensorflow_ops.run("NonZero", x)).get_concrete_function(
        tf.TensorSpec([2, 3], tf.float32)
    )
    assert traced.output_shapes.as_list() == [2, None]


def test_wrong_shapes_are_refused_while_tracing() -> None:
    with pytest.raises(ValueError, match="two float32 lists of boxes Nx5 are needed"):
        tf.function(lambda x: tensorflow_ops.run("npuforge::RotatedIou", x, x)).get_concrete_function(
            tf.TensorSpec([3, 4], tf.float32)
        )


def test_what_has_no_kernel_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="it is not known"):
        tensorflow_ops.run("npuforge::Nothing", np.zeros(2, np.float32))


def test_saved_model_in_another_process(tmp_path: Path, tensorflow_library: Path) -> None:
    class Network(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.threshold = tf.Variable([[[0.5]], [[-0.25]], [[1.0]]])

        @tf.function(input_signature=[tf.TensorSpec([1, 3, 4, 5], tf.float32)])
        def __call__(self, x: Any) -> Any:
            y, mask = tensorflow_ops.run(
                "npuforge::LeakyReluMask", tensorflow_ops.run("npuforge::Silu", x), outputs=2, alpha=0.1
            )
            return tensorflow_ops.run("npuforge::ModSigmoid", y * 2.0 + mask, self.threshold)

    x = np.random.default_rng(1).normal(size=(1, 3, 4, 5)).astype(np.float32)
    network = Network()
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", network(x).numpy())
    tf.saved_model.save(network, str(tmp_path / "model"))
    program = (
        "import sys, numpy as np, tensorflow as tf\n"
        "folder, library = sys.argv[1:]\n"
        "tf.load_op_library(library)\n"
        "found = tf.saved_model.load(folder + '/model')(tf.constant(np.load(folder + '/x.npy'))).numpy()\n"
        "np.testing.assert_array_equal(found, np.load(folder + '/y.npy'))\n"
    )
    subprocess.run(
        [sys.executable, "-c", program, str(tmp_path), str(tensorflow_library)], check=True, env=dict(os.environ)
    )
