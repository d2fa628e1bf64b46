"""Regions of detection in two passes: R-CNN."""

from typing import Any

from sterna.te import Tensor
from sterna.topi.operators import one_tensor, operator

proposal = operator("vision.proposal")


def roi_align_nchw(
    data: Tensor, rois: Tensor, pooled_size: Any, spatial_scale: float, mode: str | bytes = "avg",
    sample_ratio: int = -1,
) -> Tensor:
    """Regions of images with channels first, interpolated and pooled."""
    return _aligned(data, rois, pooled_size, spatial_scale, mode, sample_ratio, "NCHW")


def roi_align_nhwc(
    data: Tensor, rois: Tensor, pooled_size: Any, spatial_scale: float, mode: str | bytes = "avg",
    sample_ratio: int = -1,
) -> Tensor:
    """Regions of images with channels last, interpolated and pooled."""
    return _aligned(data, rois, pooled_size, spatial_scale, mode, sample_ratio, "NHWC")


def _aligned(
    data: Tensor, rois: Tensor, pooled_size: Any, spatial_scale: float, mode: str | bytes,
    sample_ratio: int, layout: str,
) -> Tensor:
    kind = mode.decode() if isinstance(mode, bytes) else mode
    return one_tensor("vision.roi_align", data, rois, _pair(pooled_size), spatial_scale,
                      sample_ratio, layout, kind)


def roi_pool_nchw(
    data: Tensor, rois: Tensor, pooled_size: Any, spatial_scale: float
) -> Tensor:
    """The largest elements of regions of images with channels first."""
    return one_tensor("vision.roi_pool", data, rois, _pair(pooled_size), spatial_scale, "NCHW")


def _pair(value: Any) -> tuple[int, ...]:
    return (value, value) if isinstance(value, int) else tuple(value)
