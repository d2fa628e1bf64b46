"""What Tensor Cores compute, in the interpreter: lanes with their registers, matrices in memory.

A product of a warp has rows, columns and sums that are spread over lanes. In words of 32 bits, lane
l has of the first factor rows l // 4 and eight below, of the second column l // 4, and of the sums
rows l // 4 and eight below, columns 2 * (l % 4) and the next. Four warps have 16 rows each.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from sterna.ir.expr import Call
from sterna.support.dtype import DataType
from sterna.tir.device_blocks import (
    GROUP,
    Block,
    Machine,
    Numbers,
    bytes_of,
    decoded,
    elements,
    encoded,
    shortened,
)
from sterna.tir.device_threads import Given
from sterna.tir.fragments import (
    FILL,
    LOAD,
    MULTIPLY,
    WARP,
    Fragment,
    element_of,
    tile_at,
)
from sterna.tir.memory import Pointer
from sterna.tir.tensor_maps import swizzled

_DESCRIBED, _ROW_BYTES = 0x3FFF, 128
_SWIZZLES = {0: 0, 1: 7, 2: 3, 3: 1}
"""By a descriptor's number of a swizzle: the bits of a row's number that places are changed by."""
_PITCHES = {0: 128, 1: 128, 2: 64, 3: 32}
"""By the same: the bytes of a row."""
STEP_BYTES = 32
"""Of each row, that one product of four warps takes."""


# ---- registers of lanes ----


@cache
def first_factor(bits: int, words: int) -> tuple[Numbers, Numbers]:
    """By lane and place in its words: rows and steps of the first factor."""
    lane, word, each = _by_lane(bits, words)
    per = 32 // bits
    return lane // 4 + 8 * (word % 2), per * (lane % 4) + 4 * per * (word // 2) + each


@cache
def second_factor(bits: int, words: int) -> tuple[Numbers, Numbers]:
    """By lane and place in its words: steps and columns of the second factor."""
    lane, word, each = _by_lane(bits, words)
    per = 32 // bits
    return per * (lane % 4) + 4 * per * word + each, lane // 4 + 0 * each


def _by_lane(bits: int, words: int) -> tuple[Numbers, Numbers, Numbers]:
    lane, place = np.meshgrid(np.arange(WARP), np.arange(words * 32 // bits), indexing="ij")
    return lane, place // (32 // bits), place % (32 // bits)


@cache
def sums_of(columns: int, threads: int) -> tuple[Numbers, Numbers]:
    """By thread and number of its sums: rows and columns."""
    count = columns * 16 // WARP
    thread, place = np.meshgrid(np.arange(threads), np.arange(count), indexing="ij")
    row = 16 * (thread // WARP) + thread % WARP // 4 + 8 * (place // 2 % 2)
    return row, 8 * (place // 4) + 2 * (thread % 4) + place % 2


def gathered(lanes: Sequence[Pointer], count: int, dtype: DataType) -> Numbers:
    """Registers of threads as numbers, a row for each."""
    size = count * dtype.bits // 8
    return decoded(np.stack([bytes_of(at, size) for at in lanes]), dtype).reshape(len(lanes), count)


def add_products(
    sums: Sequence[Pointer], columns: int, total: DataType, product: Numbers, adds: bool
) -> None:
    """Put products, or sums with them, into the registers of threads."""
    row, column = sums_of(columns, len(sums))
    made = product[row, column]
    if adds:
        made = made + gathered(sums, made.shape[1], total)
    for at, own in zip(sums, encoded(made, total), strict=True):
        elements(at, len(own))[:] = own


def operands(numbers: Numbers, dtype: DataType) -> Numbers:
    """Factors as Tensor Cores take them."""
    return shortened(numbers) if str(dtype) == "float32" else numbers


# ---- matrices in shared memory ----


def matrix_at(
    block: Block, descriptor: int, dtype: DataType, rows: int, along_rows: bool
) -> Numbers:
    """The matrix of rows and steps that a descriptor names."""
    start = (descriptor & _DESCRIBED) << 4
    leading = (descriptor >> 16 & _DESCRIBED) << 4
    stride = (descriptor >> 32 & _DESCRIBED) << 4
    mode = descriptor >> 62 & 3
    swizzle = _SWIZZLES[mode]
    steps = STEP_BYTES // dtype.bytes
    row, step = np.meshgrid(np.arange(rows), np.arange(steps), indexing="ij")
    if along_rows:
        wide = _ROW_BYTES // dtype.bytes
        at = row // wide * leading + step // 8 * stride + step % 8 * _ROW_BYTES
        at = at + row % wide * dtype.bytes
    else:
        at = row // 8 * stride + row % 8 * _PITCHES[mode] + step * dtype.bytes
    places = swizzled(start + at[..., None] + np.arange(dtype.bytes), swizzle)
    if places.max() >= len(block.shared):
        raise IndexError(f"a matrix of {rows} rows from {start} on is outside of shared memory")
    return decoded(block.shared[places], dtype).reshape(rows, steps)


def wgmma(machine: Machine, call: Call, threads: Given) -> None:
    """A product of four warps, both factors in shared memory, which is done by its wait."""
    kind, columns, _, a, b, adds, a_along, b_along = threads[0][1]
    _check_same(call, threads, (3, 4, 5))
    block, dtype = threads[0][0].block, DataType(kind)
    sums = [given[2] for _, given in _in_order(threads)]

    def multiply() -> None:
        left = operands(matrix_at(block, a, dtype, GROUP // 2, bool(a_along)), dtype)
        right = operands(matrix_at(block, b, dtype, columns, bool(b_along)), dtype)
        add_products(sums, columns, _total(dtype), left @ right.T, bool(adds))

    _products_of(threads).add(multiply, machine.random)


def wgmma_registers(machine: Machine, call: Call, threads: Given) -> None:
    """The same with the first factor in registers."""
    kind, columns, _, _, b, adds, b_along = threads[0][1]
    _check_same(call, threads, (4, 5))
    block, dtype = threads[0][0].block, DataType(kind)
    ordered = _in_order(threads)
    sums, words = ([given[place] for _, given in ordered] for place in (2, 3))

    def multiply() -> None:
        count = 4 * 32 // dtype.bits
        held = gathered(words, count, dtype)
        left = np.zeros((GROUP // 2, STEP_BYTES // dtype.bytes))
        row, step = first_factor(dtype.bits, 4)
        for warp in range(4):
            left[16 * warp + row, step] = held[WARP * warp : WARP * (warp + 1)]
        right = operands(matrix_at(block, b, dtype, columns, bool(b_along)), dtype)
        add_products(sums, columns, _total(dtype), operands(left, dtype) @ right.T, bool(adds))

    _products_of(threads).add(multiply, machine.random)


def _total(dtype: DataType) -> DataType:
    return DataType("float32" if dtype.is_float else "int32")


def _in_order(threads: Given) -> Given:
    return sorted(threads, key=lambda one: one[0].number)


def _products_of(threads: Given) -> Any:
    thread = threads[0][0]
    return thread.block.groups_of("products", thread.number // GROUP)


def commit_products(machine: Machine, call: Call, threads: Given) -> None:
    """The products so far are a group."""
    _products_of(threads).commit()


def wait_for_products(machine: Machine, call: Call, threads: Given) -> None:
    """Do all products but those of the last groups."""
    _products_of(threads).wait(threads[0][1][0])


def _check_same(call: Call, threads: Given, places: Sequence[int]) -> None:
    for place in places:
        if len({given[place] for _, given in threads}) > 1:
            raise ValueError(f"{call.op}: threads differ in argument {place}, {call.args[place]}")


# ---- warps ----


def mma(machine: Machine, call: Call, lanes: Given) -> None:
    """16 rows, 8 columns, and as many steps as 32 bytes of a row have."""
    dtype = DataType(lanes[0][1][0])
    kinds = dtype, dtype, DataType("float32")
    multiply_in_warp(lanes, STEP_BYTES // dtype.bytes, kinds, (2, 3, 1))


def multiply_in_warp(
    lanes: Given, depth: int, kinds: tuple[DataType, DataType, DataType],
    places: tuple[int, int, int],
) -> None:
    """sums += a times b of 16 rows and 8 columns; places: of the arguments a, b and sums."""
    ordered = _in_order(lanes)
    a, b, sums = ([given[place] for _, given in ordered] for place in places)
    left, right = np.zeros((16, depth)), np.zeros((depth, 8))
    words = depth * kinds[0].bits * 16 // 32 // WARP
    left[first_factor(kinds[0].bits, words)] = gathered(a, words * 32 // kinds[0].bits, kinds[0])
    words //= 2
    right[second_factor(kinds[1].bits, words)] = gathered(b, words * 32 // kinds[1].bits, kinds[1])
    product = operands(left, kinds[0]) @ operands(right, kinds[1])
    add_products(sums, 8, kinds[2], product, True)


_PTX_TYPES = {
    "fp16": "float16", "float16": "float16", "f16": "float16", "bf16": "bfloat16",
    "bfloat16": "bfloat16", "tf32": "float32", "int8": "int8", "s8": "int8", "uint8": "uint8",
    "u8": "uint8", "fp32": "float32", "float32": "float32", "f32": "float32", "int32": "int32",
    "s32": "int32", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2",
}


def type_of_ptx(name: str) -> DataType:
    """The type that ptx_mma's word stands for."""
    if name not in _PTX_TYPES:
        raise ValueError(f"ptx_mma has no type {name!r}; it has {', '.join(_PTX_TYPES)}")
    return DataType(_PTX_TYPES[name])


def ptx_mma(machine: Machine, call: Call, lanes: Given) -> None:
    """m16n8kK, with offsets behind addresses."""
    said = lanes[0][1]
    depth = int(said[0].rpartition("k")[2])
    kinds = (type_of_ptx(said[3]), type_of_ptx(said[4]), type_of_ptx(said[5]))
    moved = [
        (lane, [moved_by(given[place], given[place + 1]) for place in (6, 8, 10)])
        for lane, given in lanes
    ]
    multiply_in_warp(moved, depth, kinds, (0, 1, 2))


def moved_by(at: Pointer, count: int) -> Pointer:
    """So many elements behind an address."""
    return Pointer(at.memory, at.offset + count, at.packed)


def load_matrices(
    lanes: Given, rows: Sequence[Numbers], to: Sequence[Pointer], transposed: bool
) -> None:
    """Matrices of 8 x 8 numbers of 16 bits into words; rows: those that lanes name, in order."""
    for lane, _ in lanes:
        own = lane.number % WARP
        for number in range(len(rows) // 8):
            matrix = np.stack(rows[8 * number : 8 * number + 8]).view(np.uint16).reshape(8, 8)
            matrix = matrix.T if transposed else matrix
            pair = np.ascontiguousarray(matrix[own // 4, 2 * (own % 4) : 2 * (own % 4) + 2])
            bytes_of(to[own], 4 * (len(rows) // 8))[4 * number : 4 * number + 4] = pair.view(
                np.uint8
            )


def ldmatrix(machine: Machine, call: Call, lanes: Given) -> None:
    """Four matrices from shared memory."""
    ordered = _in_order(lanes)
    rows = [lane.block.bytes_at(given[1], 16) for lane, given in ordered]
    load_matrices(ordered, rows, [given[0] for _, given in ordered], False)


def ptx_ldmatrix(machine: Machine, call: Call, lanes: Given) -> None:
    """One, two or four of them, transposed if that is said."""
    ordered = _in_order(lanes)
    transposed, count = ordered[0][1][:2]
    to = [moved_by(given[3], given[4]) for _, given in ordered]
    rows = [bytes_of(moved_by(given[5], given[6]), 16) for _, given in ordered[: 8 * count]]
    load_matrices(ordered, rows, to, bool(transposed))


def stmatrix(machine: Machine, call: Call, lanes: Given) -> None:
    """Two or four matrices into shared memory."""
    ordered = _in_order(lanes)
    transposed, count = ordered[0][1][1], len(ordered[0][1]) - 2
    for number in range(count):
        words = np.array([given[2 + number] for _, given in ordered], np.uint32)
        matrix = words.view(np.uint16).reshape(8, 8)
        matrix = matrix.T if transposed else matrix
        for row in range(8):
            lane, given = ordered[8 * number + row]
            lane.block.bytes_at(given[0], 16)[:] = np.ascontiguousarray(matrix[row]).view(np.uint8)


def first_lane(machine: Machine, call: Call, lanes: Given) -> list[Any]:
    """What the first lane has, for all."""
    return [_in_order(lanes)[0][1][0]] * len(lanes)


def nothing(machine: Machine, call: Call, lanes: Given) -> None:
    """They only wait for each other."""


# ---- fragments, which are in the memory of the first lane ----


def fragments(machine: Machine, call: Call, lanes: Given) -> None:
    """Fill, load, store or multiply; a matrix is kept row by row."""
    first, given = _in_order(lanes)[0]
    if call.op == MULTIPLY:
        _multiply_fragments(machine, call, given)
        return
    fragment = machine.fragments[element_of(call.args[0]).buffer]
    own = _tile(given[0], given[4], fragment)
    held = elements(own, fragment.size)
    if call.op == FILL:
        held[:] = encoded(np.array(given[5], np.float64), fragment.dtype)
        return
    buffer = element_of(call.args[5]).buffer
    _check_places(call, lanes)
    rows, columns = fragment.sides
    row, column = np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij")
    far, near = (row, column) if given[7] == "row_major" else (column, row)
    at: Pointer = given[5]
    places = at.offset + far * given[6] + near
    if places.min() < 0 or places.max() >= len(at.memory):
        raise IndexError(f"{call.op} is outside of {buffer.name}")
    writes = call.op != LOAD
    machine.touch(at.memory, places.reshape(-1).tolist(), buffer, -2 - first.number // WARP, writes)
    if writes:
        at.memory[places] = held.reshape(rows, columns)
    else:
        held[:] = at.memory[places].reshape(-1)


def _tile(at: Pointer, index: int, fragment: Fragment) -> Pointer:
    return Pointer(at.memory, (tile_at(at.offset, fragment) + index) * fragment.size)


def _check_places(call: Call, lanes: Given) -> None:
    """All lanes must mean one matrix."""
    places = {(given[5].memory.ctypes.data, given[5].offset, given[4]) for _, given in lanes}
    if len(places) > 1:
        raise ValueError(
            f"{call.op}: the lanes of a warp mean different matrices; let its place depend on "
            "threadIdx.y, threadIdx.z or threadIdx.x // 32"
        )


def _multiply_fragments(machine: Machine, call: Call, given: Sequence[Any]) -> None:
    """d = a times b plus c."""
    d, a, b, c = (_held(machine, call, given, place) for place in (0, 2, 4, 6))
    total = element_of(call.args[0]).buffer.dtype
    elements(d[0], d[1].size)[:] = encoded((a[1] @ b[1] + c[1]).reshape(-1), total)


def _held(
    machine: Machine, call: Call, given: Sequence[Any], place: int
) -> tuple[Pointer, Numbers]:
    """A fragment: where it begins, and its numbers."""
    buffer = element_of(call.args[place]).buffer
    if buffer not in machine.fragments:
        raise ValueError(f"{buffer.name} is multiplied, and nothing fills or loads it")
    fragment = machine.fragments[buffer]
    own = _tile(given[place], given[place + 1], fragment)
    numbers = decoded(elements(own, fragment.size), fragment.dtype)
    return own, numbers.reshape(fragment.sides)
