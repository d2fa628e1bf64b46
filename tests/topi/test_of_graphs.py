"""Functions of topi that are operators of graphs, by topi's arguments, against their references."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import te, topi
from sterna.relay.op import find

RNG = np.random.default_rng(3)


def reference(name: str, *arrays: Any, **attrs: Any) -> Any:
    record = find(name)
    assert record.reference is not None and record.attrs is not None
    return record.reference(record.attrs(**attrs), *arrays)


def check(make: Callable[..., Any], wanted: Any, *arrays: Any) -> None:
    tensors = [te.placeholder(array.shape, str(array.dtype), name=f"x{i}")
               for i, array in enumerate(arrays)]
    made = make(*tensors)
    outputs = made if isinstance(made, list) else [made]
    expected = wanted if isinstance(wanted, tuple | list) else [wanted]
    schedule = topi.generic.schedule_extern(outputs)
    function = tvm.build(schedule, [*tensors, *outputs], "llvm")
    results = [tvm.nd.empty(array.shape, str(array.dtype)) for array in expected]
    function(*map(tvm.nd.array, arrays), *results)
    for result, right in zip(results, expected, strict=True):
        np.testing.assert_allclose(result.numpy(), right, rtol=1e-4, atol=1e-4)


def numbers(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("float32")


def test_resizing() -> None:
    x = numbers(1, 2, 4, 5)
    for words in ({}, {"method": "nearest_neighbor", "rounding_method": "floor",
                       "coordinate_transformation_mode": "asymmetric"},
                  {"method": "cubic", "bicubic_alpha": -0.75}):
        named = {key.replace("bicubic_alpha", "cubic_alpha"): value for key, value in words.items()}
        wanted = reference("image.resize2d", x, size=(7, 9), layout="NCHW", **named)
        check(lambda a, w=words: topi.image.resize2d(a, (7, 9), **w), wanted, x)
        check(lambda a, w=words: topi.image.resize2d(a, (0.0,) * 4, (7, 9), **w), wanted, x)
        check(lambda a, w=words: topi.image.resize2d(a, size=(7, 9), **w), wanted, x)
    check(lambda a: topi.image.resize1d(a, (), (8,)),
          reference("image.resize1d", x[0], size=(8,), layout="NCW"), x[0])
    with pytest.raises(TypeError, match=r"topi\.image\.resize2d takes a size, or a region"):
        topi.image.resize2d(te.placeholder((1, 2, 4, 5)))


def test_images() -> None:
    x, weight = numbers(1, 2, 6, 6), numbers(2, 3, 3)
    check(lambda a, w: topi.image.dilation2d_nchw(a, w, 1, 1, 1),
          reference("image.dilation2d", x, weight, padding=(1, 1)), x, weight)
    grid = np.clip(numbers(1, 2, 4, 4), -1, 1)
    check(topi.image.grid_sample, reference("image.grid_sample", x, grid), x, grid)


def test_regions() -> None:
    x = numbers(1, 2, 8, 8)
    rois = np.array([[0, 1, 1, 6, 5], [0, 0, 2, 7, 7]], "float32")
    wanted = reference("vision.roi_align", x, rois, pooled_size=(2, 2), spatial_scale=0.9,
                       sample_ratio=2)
    for module in (topi.vision, topi.vision.rcnn):
        check(lambda a, r, m=module: m.roi_align_nchw(a, r, 2, 0.9, b"avg", 2), wanted, x, rois)
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    check(lambda a, r: topi.vision.roi_align_nhwc(a, r, (2, 2), 0.9, "avg", 2),
          wanted.transpose(0, 2, 3, 1), last, rois)
    check(lambda a, r: topi.vision.roi_pool_nchw(a, r, 2, 1.0),
          reference("vision.roi_pool", x, rois, pooled_size=(2, 2), spatial_scale=1.0), x, rois)


def test_boxes() -> None:
    x = numbers(1, 4, 3, 5)
    wanted = reference("vision.multibox_prior", x, sizes=(0.3, 0.5), ratios=(1.0, 2.0))
    check(lambda a: topi.vision.ssd.multibox_prior(a, (0.3, 0.5), (1.0, 2.0)), wanted, x)


@pytest.mark.parametrize("axis", [1, 2])
def test_group_norm(axis: int) -> None:
    x, gamma, beta = numbers(2, 4, 4, 3), numbers(4), numbers(4)
    wanted = reference("nn.group_norm", x, gamma, beta, num_groups=2, axis=axis)
    rest = [each for each in (1, 2, 3) if each != axis]
    check(lambda a, g, b: topi.nn.group_norm(a, g, b, 2, axis, rest), wanted, x, gamma, beta)
    with pytest.raises(ValueError, match="the axes are all but those of batch and channels"):
        topi.nn.group_norm(te.placeholder((2, 4, 3)), te.placeholder((4,)), te.placeholder((4,)),
                           2, 1, [0])


def test_convolutions() -> None:
    x, weight = numbers(1, 3, 7), numbers(3, 2, 4)
    check(lambda a, w: topi.nn.conv1d_transpose_ncw(a, w, 2, 1, "float32", 1),
          reference("nn.conv1d_transpose", x, weight, strides=(2,), padding=(1,),
                    output_padding=(1,)), x, weight)
    x, weight = numbers(1, 2, 3, 3, 3), numbers(2, 2, 2, 2, 2)
    check(lambda a, w: topi.nn.conv3d_transpose_ncdhw(a, w, 2, 0, None),
          reference("nn.conv3d_transpose", x, weight, strides=(2, 2, 2)), x, weight)
    x, weight, offset = numbers(1, 2, 5, 5), numbers(3, 2, 3, 3), numbers(1, 18, 5, 5)
    check(lambda a, o, w: topi.nn.deformable_conv2d_nchw(a, o, w, 1, 1, 1, 1, 1),
          reference("nn.deformable_conv2d", x, offset, weight, padding=(1, 1)), x, offset, weight)


def test_losses_and_others() -> None:
    x, classes = numbers(4, 3), np.array([0, 2, 1, 1], "int32")
    weights = np.array([1, 2, 3], "float32")
    check(lambda a, t, w: topi.nn.nll_loss(a, t, w, "mean", -100),
          reference("nn.nll_loss", x, classes, weights), x, classes, weights)
    one, two = numbers(1, 2, 6, 6), numbers(1, 2, 6, 6)
    check(lambda a, b: topi.nn.correlation_nchw(a, b, 1, 1, 1, 1, 1, True),
          reference("nn.correlation", one, two, max_displacement=1, padding=(1, 1)), one, two)


def test_modules_by_their_classic_names() -> None:
    assert topi.math.exp is topi.exp and topi.broadcast.add is topi.add
    assert topi.nn.utils.get_pad_tuple((1, 2), (3, 3)) == (1, 2, 1, 2)
