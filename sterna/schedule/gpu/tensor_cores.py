"""Sums of products whose operands come by copies that run beside the threads (TMA).

Dense layers, products of matrices and convolutions with channels last: numbers of 16 bits by Tensor
Cores, float32 by the lanes of warps. A convolution's windows are read where they lie (im2col by the
copies), its weights with either of their channels last. What follows element by element is computed
on the sums in registers.
"""

import math
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace

from sterna.codegen.nvptx.architecture import Architecture
from sterna.ir import build
from sterna.ir.expr import Cast, Expr, Var
from sterna.ir.node import post_order
from sterna.ir.types import TensorType
from sterna.schedule.contraction import Contraction
from sterna.schedule.epilogue import Epilogue, epilogue_of
from sterna.schedule.gpu.lane_kernel import LaneKernel
from sterna.schedule.gpu.operand import ROW_BYTES, Matrix, Operand, Windows
from sterna.schedule.gpu.parts_kernel import PartsKernel
from sterna.schedule.gpu.persistent_kernel import PersistentKernel
from sterna.schedule.gpu.product_tiles import (
    HALVES,
    are_whole,
    least_time,
    ring_of,
    ring_of_warps,
    whole_count,
)
from sterna.schedule.gpu.ring import Product, Ring
from sterna.schedule.gpu.rounded_kernel import (
    RoundedKernel,
    RoundedPersistentKernel,
    RoundedTurnedKernel,
)
from sterna.schedule.gpu.rounded_persistent_kernel import AheadKernel
from sterna.schedule.gpu.strided import strided
from sterna.schedule.gpu.tf32_kernel import ThriceKernel, ThricePersistentKernel, rests_of
from sterna.schedule.gpu.turned_kernel import TurnedKernel
from sterna.schedule.gpu.warp_kernel import WarpKernel
from sterna.schedule.gpu.warpgroup_kernel import WarpgroupKernel
from sterna.schedule.kernel import ScheduleTarget
from sterna.schedule.products import FLOAT32
from sterna.schedule.sum_of_products import CHANNEL, TAP, SumOfProducts, description_of
from sterna.te import ComputeOp, Operation, PlaceholderOp, Tensor, compute
from sterna.te import all as all_of
from sterna.te.tensor import ProducerLoad, Reduce

GROUPS, FIRST_OF_WARPS = "sm_90a", 80
"""The GPU whose groups of four warps multiply together, and the first whose warps multiply so."""
BYTES = ("int8", "float8_e4m3fn", "float8_e5m2")
KINDS = (*HALVES, *BYTES, "float32")
"""The types of operands."""
GROUP_COLUMNS, GROUP_COLUMNS_OF_LANES = 64, 32
"""Of the smallest tiles of convolutions of groups: tiles lie in one group each."""
FEWEST_ROWS_OF_LANES, LEAST_OF_FEW_ROWS = 16, 1 << 22
"""Fewer rows of float32 are sums that threads share, for memory is what they wait for; unless they
are more products together: one row's are still such sums."""


def on_tensor_cores(
    outputs: Sequence[Tensor], target: ScheduleTarget, fixed: Container[Tensor] = ()
) -> Tensor | None:
    """The statements that make a kernel's only result; None if Tensor Cores do not suit it.

    fixed: operands that no kernel makes, which may be read before the kernels in front are done.
    """
    arch = target.attrs.get("arch")
    found = _only_sum(outputs[0]) if len(outputs) == 1 and isinstance(arch, str) else None
    if found is None:
        return None
    gpu, (total, made) = Architecture.of(str(arch)), found
    operands = _matrices(total, made) or _windows(total, made) or _columns(total, made)
    if operands is None:
        return None
    product = operands.product
    if _takes_tf32(product, gpu):
        times = int(target.attrs.get("tf32", 0))  # type: ignore[arg-type]
        operands = replace(operands, product=product.in_tf32(times))
    if not _suits(operands.product, gpu):
        return None
    epilogue = None
    if outputs[0] is not total.output(0):
        epilogue = epilogue_of(total.output(0), outputs[0])
        if epilogue is None:
            return None
    is_fixed = operands.b in fixed
    return _written(operands, is_fixed, total.output(0), epilogue, gpu)


def _suits(product: Product, gpu: Architecture) -> bool:
    """Whether a GPU has a way for a product."""
    kind = str(product.a.kind)
    if product.group % (GROUP_COLUMNS_OF_LANES if product.is_exact else GROUP_COLUMNS):
        return False
    lie_along_sums = not product.a.along_rows and not product.b.along_rows
    if gpu.name != GROUPS:
        known = kind in HALVES or (kind == "float32" and not product.is_exact)
        return gpu.number >= FIRST_OF_WARPS and lie_along_sums and known
    if product.is_exact:
        products = product.rows * product.columns * product.taps * product.depth
        is_large = product.rows > 1 and products * product.batch >= LEAST_OF_FEW_ROWS
        return product.rows >= FEWEST_ROWS_OF_LANES or is_large
    return kind in HALVES or lie_along_sums


def has_warp_products(arch: object) -> bool:
    """Whether warps of a GPU multiply tiles here."""
    return isinstance(arch, str) and Architecture.of(arch).number >= FIRST_OF_WARPS


def reads_columns(arch: object) -> bool:
    """Whether a GPU multiplies matrices of 16 bits whose columns are as long as the sums, too."""
    return isinstance(arch, str) and Architecture.of(arch).name == GROUPS


def _takes_tf32(product: Product, gpu: Architecture) -> bool:
    """Whether a product of float32 can go to Tensor Cores: both operands lie along sums."""
    lie_along_sums = not product.a.along_rows and not product.b.along_rows
    return product.a.kind == "float32" and lie_along_sums and gpu.number >= FIRST_OF_WARPS


@dataclass(frozen=True, slots=True)
class _Operands:
    """A product of matrices, and the arrays that hold them."""

    product: Product
    a: Tensor
    b: Tensor
    wide: Tensor | None = None
    """What a is rounded from, where that is a part of the kernel."""


def _written(
    operands: _Operands, is_fixed: bool, total: Tensor, epilogue: Epilogue | None,
    gpu: Architecture,
) -> Tensor:
    product = replace(operands.product, fixed="b" if is_fixed else "")
    stored = total.dtype if epilogue is None else epilogue.out.dtype
    arrays: tuple[Tensor, ...] = (operands.a, operands.b)
    name = "T_wgmma"
    make: type[WarpgroupKernel] = WarpgroupKernel
    if gpu.name != GROUPS:
        make, name, ring = WarpKernel, "T_mma", ring_of_warps(product, gpu.most_shared)
    else:
        ring = ring_of(product, gpu.most_shared, stored, operands.wide is not None)
        make, name = _kernel_of(product, ring)
        product = product.in_rows(ring.pitch)
        if ring.wide or ring.ahead:
            assert operands.wide is not None and isinstance(product.a, Matrix)
            arrays = (operands.wide, operands.b)
            product = replace(product, a=replace(product.a, wide=ring.wide))
        if ring.thrice:  # the rests come from the kernel before this one
            product, arrays = replace(product, fixed=""), (*arrays, rests_of(operands.b))
        if ring.turned:
            product, arrays = product.turned(), (arrays[1], arrays[0])
    shape = [build.int_value(extent) or 0 for extent in total.shape]
    kernel = make(product, ring, total.dtype, shape[:-1], dependent=gpu.name == GROUPS)
    out = TensorType(tuple(shape), total.dtype)
    return kernel.tensor(name, out, epilogue, arrays)


def _kernel_of(product: Product, ring: Ring) -> tuple[type[WarpgroupKernel], str]:
    """What makes a product of such tiles, and its name."""
    if product.by_lanes(ring):
        return LaneKernel, "T_lanes"
    if ring.thrice:
        return (ThricePersistentKernel if ring.resident else ThriceKernel), "T_wgmma"
    if ring.turned:
        return (RoundedTurnedKernel if ring.wide else TurnedKernel), "T_wgmma"
    if ring.apart > 1:
        return PartsKernel, "T_wgmma"
    if ring.ahead:
        return AheadKernel, "T_wgmma"
    if ring.resident:
        return (RoundedPersistentKernel if ring.wide else PersistentKernel), "T_wgmma"
    return (RoundedKernel if ring.wide else WarpgroupKernel), "T_wgmma"


# ---- what a kernel computes ----


def _only_sum(out: Tensor) -> tuple[ComputeOp, SumOfProducts] | None:
    """The one sum of products that a result is made from."""
    sums: list[ComputeOp] = []
    seen: set[Operation] = set()
    stack = [out.op]
    while stack:
        op = stack.pop()
        if op in seen:
            continue
        seen.add(op)
        if isinstance(op, ComputeOp) and op.reduce_axis:
            sums.append(op)
        elif isinstance(op, ComputeOp):
            stack += [tensor.op for tensor in op.input_tensors]
        elif not isinstance(op, PlaceholderOp):
            return None
    made = description_of(sums[0]) if len(sums) == 1 else None
    if made is None or made.chunk_roles or len(made.accesses) != 2:
        return None
    kinds = {str(access.dtype) for access in made.accesses}
    known = None not in (*made.extents, *made.steps)
    if len(kinds) != 1 or not kinds <= {*KINDS} or not known:
        return None
    return sums[0], made


def _loads(total: ComputeOp) -> list[ProducerLoad]:
    body = total.body[0]
    assert isinstance(body, Reduce)
    loads: list[ProducerLoad] = []
    post_order(body.source[0], lambda n: loads.append(n) if isinstance(n, ProducerLoad) else None)
    return loads


def _matrices(total: ComputeOp, made: SumOfProducts) -> _Operands | None:
    """A product of matrices: rows and columns, and perhaps many such."""
    if made.roles != (CHANNEL,):
        return None
    first, second = _loads(total)
    wide = _rounded_from(first.tensor)
    if wide is None and not isinstance(first.tensor.op, PlaceholderOp):
        return None
    if not isinstance(second.tensor.op, PlaceholderOp):
        return None
    sizes, depth = made.sizes, made.depths[0]
    *outer, n, k = range(len(sizes) + 1)
    outer = [axis for axis in outer if sizes[axis] != 1]
    left, right = (_order(total, load, (n, k)) for load in (first, second))
    if left is None or right is None:
        return None
    kind, columns = first.tensor.dtype, sizes[n]
    batch = outer[: len(right) - 2]
    rows = outer[len(batch):]
    if left == (*batch, *rows, k):
        a_along = False
    elif len(rows) == 1 and left == (*batch, k, *rows):
        a_along = True
    else:
        return None
    if right not in ((*batch, n, k), (*batch, k, n)):
        return None
    if a_along and kind == "float32":
        return None
    many, height = (math.prod(sizes[axis] for axis in axes) for axes in (batch, rows))
    a = Matrix(kind, height, depth, batch=many, along_rows=a_along)
    b = Matrix(kind, columns, depth, batch=many, along_rows=right[-1] == n)
    made_of = Product(_filled(a), _filled(b), height, columns, 1, depth, many)
    if not _is_whole(a):
        wide = None  # rounded where its rows are filled up
    return _Operands(made_of, _with_whole_rows(first.tensor), _with_whole_rows(second.tensor), wide)


def _order(
    total: ComputeOp, load: ProducerLoad, kept: tuple[int, int]
) -> tuple[int, ...] | None:
    """Which axis each index of an operand is, without those of one element but for some that are
    kept; None if one is none."""
    places = {axis.var: place for place, axis in enumerate((*total.axis, *total.reduce_axis))}
    found: list[int] = []
    for index, extent in zip(load.indices, load.tensor.shape, strict=True):
        place = places.get(index) if isinstance(index, Var) else None
        if build.is_const(extent, 1) and place not in kept:
            continue
        if place is None:
            return None
        found.append(place)
    return tuple(found)


def _rounded_from(tensor: Tensor) -> Tensor | None:
    """The array of float32 that a tensor is, number by number, rounded to 16 bits."""
    op = tensor.op
    if not isinstance(op, ComputeOp) or str(tensor.dtype) not in HALVES or len(op.body) != 1:
        return None
    body = op.body[0]
    if not isinstance(body, Cast) or not isinstance(body.value, ProducerLoad):
        return None
    source = body.value
    straight = list(source.indices) == [axis.var for axis in op.axis]
    is_given = isinstance(source.tensor.op, PlaceholderOp) and source.tensor.dtype == FLOAT32
    return source.tensor if straight and is_given else None


def _is_whole(operand: Matrix) -> bool:
    """Whether rows of an array are multiples of 16 bytes."""
    return are_whole(operand.rows if operand.along_rows else operand.depth, operand.kind)


def _filled(operand: Matrix) -> Matrix:
    """The same with rows in memory that are multiples of 16 bytes."""
    if operand.along_rows:
        return replace(operand, rows=whole_count(operand.rows, operand.kind))
    return replace(operand, depth=whole_count(operand.depth, operand.kind))


def _with_whole_rows(tensor: Tensor) -> Tensor:
    """An operand whose rows a kernel of its own fills up with zeros to multiples of 16 bytes."""
    *outer, size = (build.int_value(extent) for extent in tensor.shape)
    assert size is not None
    if are_whole(size, tensor.dtype):
        return tensor
    zero = build.const(0, tensor.dtype)

    def element(*at: Expr) -> Expr:
        return build.if_then_else(at[-1] < size, tensor(*at), zero)

    shape = [*(extent or 0 for extent in outer), whole_count(size, tensor.dtype)]
    filled: Tensor = compute(shape, element, name="T_filled")
    return filled


def _windows(total: ComputeOp, made: SumOfProducts) -> _Operands | None:
    """A convolution of images with channels last."""
    what = made.contraction
    if what is None or len(total.axis) != 4 or not _suits_windows(what):
        return None
    found = _weights(total, made)
    data = _unpadded(made.accesses[0].tensor, what)
    if data is None or found is None:
        return None
    weights, made_last = found
    return _Operands(_product_of(what, made_last), data, weights)


def _product_of(made: Contraction, made_last: bool) -> Product:
    """That of a convolution's windows and its weights, in which made channels may lie last."""
    b = Matrix(made.weight, made.outputs, made.depth, made.taps, along_rows=made_last)
    a: Operand = Windows(made)
    if made.is_pointwise:
        a = Matrix(made.data, made.pixels, made.inputs)
    group = made.outputs // made.groups if made.groups > 1 else 0
    return Product(a, b, made.pixels, made.outputs, made.taps, made.depth, group=group)


def convolution_time(made: Contraction, arch: object) -> float:
    """The microseconds that a convolution takes on a GPU with channels last; infinite where
    neither Tensor Cores nor lanes suit it."""
    if not isinstance(arch, str):
        return math.inf
    gpu, last = Architecture.of(arch), replace(made, data_layout="NHWC", out_layout="NHWC")
    product = _product_of(last, False)
    if not _suits(product, gpu) or (made.groups > 1 and not _suits_windows(last)):
        return math.inf
    return least_time(product, gpu.most_shared, made.out)


def _weights(total: ComputeOp, made: SumOfProducts) -> tuple[Tensor, bool] | None:
    """A convolution's weights, and whether made channels lie last in them; else read ones do.

    None if they lie otherwise: taps are before both, and made channels may be before all.
    """
    _, second = _loads(total)
    if not isinstance(second.tensor.op, PlaceholderOp) or made.roles != (CHANNEL, TAP, TAP):
        return None
    o, c, h, w = range(made.columns, made.columns + 4)
    orders = {(h, w, c, o): True, (o, h, w, c): False}
    order = made.accesses[1].order
    return (second.tensor, orders[order]) if order in orders else None


def _columns(total: ComputeOp, made: SumOfProducts) -> _Operands | None:
    """A convolution of few channels, whose windows a kernel of its own writes as columns."""
    what = made.contraction
    if what is None or len(total.axis) != 4 or not what.is_plain_image or what.transposed:
        return None
    found = _weights(total, made)
    data = _unpadded(made.accesses[0].tensor, what)
    if data is None or found is None or not are_whole(what.outputs, what.data):
        return None
    weights, made_last = found
    if not made_last:
        return None
    columns = columns_of(data, what)
    depth = build.int_value(columns.shape[-1])
    assert depth is not None
    a = Matrix(what.data, what.pixels, depth)
    b = Matrix(what.weight, what.outputs, what.products, along_rows=True)
    return _Operands(Product(a, b, what.pixels, what.outputs, 1, depth), columns, weights)


def columns_of(data: Tensor, made: Contraction) -> Tensor:
    """What the windows of a convolution read: a row for each pixel of the result (im2col).

    Its rows are filled up to multiples of 16 bytes.
    """
    depth = whole_count(made.products, made.data)
    (high, wide), (height, width) = made.result, made.image
    border = build.const(made.border, made.data)

    def element(pixel: Expr, place: Expr) -> Expr:
        image, row, column = pixel // (high * wide), pixel // wide % high, pixel % wide
        tap, channel = place // made.inputs, place % made.inputs
        down, across = tap // made.window[1], tap % made.window[1]
        y = row * made.strides[0] + down * made.dilation[0] - made.before[0]
        x = column * made.strides[1] + across * made.dilation[1] - made.before[1]
        inside = all_of(place < made.products, y >= 0, y < height, x >= 0, x < width)
        return build.if_then_else(inside, data(image, y, x, channel), border)

    columns: Tensor = compute((made.pixels, depth), element, name="T_columns")
    return columns


def _suits_windows(made: Contraction) -> bool:
    """What copies of windows can do."""
    is_plain = made.rank == 2 and made.channels_last and made.macs > 0
    if not is_plain or made.transposed or made.border or not _has_whole_groups(made):
        return False
    reach = [(k - 1) * d for k, d in zip(made.window, made.dilation, strict=True)]
    corners = [*made.before, *made.after, *reach]
    return (
        are_whole(made.inputs, made.data) and are_whole(made.outputs, made.data)
        and max(corners) < 128 and max(made.strides) <= 8
    )


def _has_whole_groups(made: Contraction) -> bool:
    """Whether blocks of sums have channels of one group each."""
    return made.groups == 1 or made.depth * made.data.bytes % ROW_BYTES == 0


def _unpadded(source: Tensor, made: Contraction) -> Tensor | None:
    """The data before a border was put around it: an array, or one in another order or type."""
    op = source.op
    if isinstance(op, ComputeOp) and len(op.input_tensors) == 1 and strided(source) is None:
        source = op.input_tensors[0]
    shape = tuple(build.int_value(extent) for extent in source.shape)
    whole = (made.batch, *made.image, made.inputs)
    return source if shape == whole and strided(source) is not None else None
