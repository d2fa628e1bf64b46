"""Images as tensor expressions: sizes, grids, crops."""

from typing import Any

from sterna.te import Tensor
from sterna.topi.operators import one_tensor, operator

affine_grid = operator("image.affine_grid")
crop_and_resize = operator("image.crop_and_resize")
grid_sample = operator("image.grid_sample")


def _resize(name: str, layout: str) -> Any:
    # bicubic_alpha and bicubic_exclude are cubic_alpha and cubic_exclude of the operator.
    def make(
        data: Tensor, *where: Any, layout: str = layout, method: str = "linear",
        coordinate_transformation_mode: str = "half_pixel", rounding_method: str = "",
        bicubic_alpha: float = -0.5, bicubic_exclude: int = 0, extrapolation_value: float = 0.0,
        out_dtype: str | None = None, size: Any = None, roi: Any = None,
    ) -> Tensor:
        given = [*where, *([] if size is None else [size])]
        if len(given) not in (1, 2):
            raise TypeError(f"topi.image.{name} takes a size, or a region and a size")
        region = given[0] if len(given) == 2 else roi
        return one_tensor(
            f"image.{name}", data, given[-1], roi=tuple(region or ()), layout=layout,
            method=method, coordinate_transformation_mode=coordinate_transformation_mode,
            rounding_method=rounding_method, cubic_alpha=bicubic_alpha,
            cubic_exclude=bicubic_exclude, extrapolation_value=extrapolation_value,
            **({} if out_dtype is None else {"out_dtype": out_dtype}),
        )

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"image.{name} to a size; before the size may stand a region, as in (roi, size)."
    return make


resize1d = _resize("resize1d", "NCW")
resize2d = _resize("resize2d", "NCHW")
resize3d = _resize("resize3d", "NCDHW")


def dilation2d_nchw(
    input: Tensor, filter: Tensor, stride: Any, padding: Any, dilations: Any,
    out_dtype: str | None = None,
) -> Tensor:
    """The largest sum of a window's elements and its weights; weights are IHW."""
    return one_tensor("image.dilation2d", input, filter, strides=_pair(stride),
                      padding=_pair(padding), dilations=_pair(dilations),
                      **({} if out_dtype is None else {"out_dtype": out_dtype}))


def _pair(value: Any) -> tuple[int, ...]:
    return (value, value) if isinstance(value, int) else tuple(value)
