"""PTX of fragments (wmma) and of the instructions by PTX's names. Meaning: sterna/tir/fragments.py.

A fragment is an array of words of each lane, which become registers where the numbers of fragments
are known: loops over them are written out (registers.py).
"""

from collections.abc import Sequence
from typing import Any

from sterna.codegen.llvm.convert import zero
from sterna.codegen.nvptx.architecture import Needs
from sterna.codegen.nvptx.intrinsics import DeviceIntrinsic
from sterna.codegen.nvptx.warpgroups import array_of, box, number_of, put_results, write_asm
from sterna.ir import build
from sterna.ir.expr import Call, StringImm
from sterna.support.dtype import DataType
from sterna.tir import fragments as F
from sterna.tir.fragments import ACCUMULATOR, MATRIX_A, MATRIX_B, WARP, Fragment, element_of
from sterna.tir.stmt import BufferLoad
from sterna.tir.threads import is_shared

_NAMES = {
    "float16": "f16", "bfloat16": "bf16", "float32": "f32", "int8": "s8", "uint8": "u8",
    "int32": "s32",
}
_SHAPES = {
    "float16": ((16, 16, 16), (8, 32, 16), (32, 8, 16)),
    "bfloat16": ((16, 16, 16), (8, 32, 16), (32, 8, 16)),
    "int8": ((16, 16, 16), (8, 32, 16), (32, 8, 16)),
    "uint8": ((16, 16, 16), (8, 32, 16), (32, 8, 16)),
    "float32": ((16, 16, 8),),
}
"""By the type of factors: the products that there are, m, n and k. Of float32 that is tf32."""
_FACTOR_NEEDS = {
    "float16": Needs(70, 63), "int8": Needs(72, 63), "uint8": Needs(72, 63),
    "bfloat16": Needs(80, 70), "float32": Needs(80, 70),
}
_PARTS = {MATRIX_A: "a", MATRIX_B: "b", ACCUMULATOR: "c"}
_ADDRESS = {True: (".shared", "r", "i32"), False: ("", "l", "ptr")}


def words_of(fragment: Fragment) -> int:
    """The registers of a lane that hold one fragment."""
    if fragment.dtype == "float16" and fragment.scope != ACCUMULATOR:
        return 8  # of a matrix of 16 x 16, each number is held twice; others have as many words
    return max(fragment.size * fragment.dtype.bits // 32 // WARP, 1)


def _kind(fragment: Fragment) -> tuple[str, str]:
    """The type of its registers, for LLVM and as a constraint."""
    return ("float", "f") if str(fragment.dtype) == "float32" and (
        fragment.scope == ACCUMULATOR) else ("i32", "r")


def _of(emitter: Any, expr: Call, place: int) -> Fragment:
    buffer = element_of(expr.args[place]).buffer
    found: Fragment | None = emitter.fragments.get(buffer)
    if found is None:
        raise ValueError(
            f"{emitter.name}: {expr.op} takes {buffer.name}, which nothing fills or loads"
        )
    return found


def _check(emitter: Any, factor: DataType, shape: tuple[int, int, int]) -> None:
    known = _SHAPES.get(str(factor))
    if known is None or shape not in known:
        able = "; ".join(f"{kind}: {', '.join(map(str, each))}" for kind, each in _SHAPES.items())
        raise ValueError(
            f"{emitter.name}: Tensor Cores have no fragments of {factor} with m, n, k = {shape}; "
            f"they have {able}"
        )
    emitter.need(_FACTOR_NEEDS[str(factor)], f"wmma of {factor}")


def _places(emitter: Any, expr: Call, place: int, fragment: Fragment) -> list[str]:
    """The addresses of a fragment's words."""
    buffer = element_of(expr.args[place]).buffer
    kind, words = _kind(fragment)[0], words_of(fragment)
    first = F.tile_number(expr, place, fragment) * words
    start = emitter.writer.value(
        f"getelementptr inbounds {kind}, ptr {emitter.env[id(buffer.data)]}, "
        f"i32 {emitter.expr(first)}"
    )
    return array_of(emitter, kind, start, words)


def _loaded(emitter: Any, places: Sequence[str], kind: str) -> list[str]:
    return [f"{kind} {emitter.writer.value(f'load {kind}, ptr {place}, align 4')}"
            for place in places]


def _fill(emitter: Any, expr: Call) -> str:
    fragment = _of(emitter, expr, 0)
    kind, _ = _kind(fragment)
    value = build.cast(fragment.dtype, expr.args[5])
    if fragment.dtype.bits == 32:
        word = emitter.expr(value)
    else:
        vector = build.cast(fragment.dtype.with_lanes(32 // fragment.dtype.bits), value)
        word = emitter.expr(Call(DataType("int32"), "reinterpret", (vector,)))
    for place in _places(emitter, expr, 0, fragment):
        emitter.writer.emit(f"store {kind} {word}, ptr {place}, align 4")
    return zero(expr.dtype)


def _layout(expr: Call) -> str:
    said = expr.args[7]
    assert isinstance(said, StringImm)
    return {"row_major": "row", "col_major": "col"}[said.value]


def _address(emitter: Any, load: BufferLoad) -> tuple[str, str, str]:
    """How an instruction names memory, a constraint, and the operand."""
    space, letter, kind = _ADDRESS[is_shared(load.buffer.scope)]
    if space:
        place = emitter.shared_address(load)
        operand = emitter.writer.value(f"ptrtoint ptr addrspace(3) {place} to i32")
    else:
        operand = emitter.expr(Call(load.buffer.data.dtype, "address_of", (load,)))
    return space, letter, f"{kind} {operand}"


def _shape(fragment: Fragment) -> str:
    return "m{}n{}k{}".format(*fragment.shape)


def _memory_type(fragment: Fragment) -> str:
    if str(fragment.dtype) == "float32" and fragment.scope != ACCUMULATOR:
        return "tf32"
    return _NAMES[str(fragment.dtype)]


def _load(emitter: Any, expr: Call) -> str:
    fragment = _of(emitter, expr, 0)
    if fragment.scope != ACCUMULATOR:
        _check(emitter, fragment.dtype, fragment.shape)
    kind, letter = _kind(fragment)
    words = words_of(fragment)
    space, way, address = _address(emitter, element_of(expr.args[5]))
    text = (
        f"wmma.load.{_PARTS[fragment.scope]}.sync.aligned.{_layout(expr)}.{_shape(fragment)}"
        f"{space}.{_memory_type(fragment)} {box(0, words)}, [${words}], ${words + 1};"
    )
    made = write_asm(
        emitter, text, ",".join([f"={letter}"] * words + [way, "r"]), address,
        f"i32 {emitter.expr(build.cast('int32', expr.args[6]))}",
        result=_result(kind, words),
    )
    _put(emitter, kind, made, _places(emitter, expr, 0, fragment))
    return zero(expr.dtype)


def _result(kind: str, words: int) -> str:
    return "{" + ", ".join([kind] * words) + "}" if words > 1 else kind


def _put(emitter: Any, kind: str, made: str, places: list[str]) -> None:
    if len(places) > 1:
        put_results(emitter, kind, made, places)
    else:
        emitter.writer.emit(f"store {kind} {made}, ptr {places[0]}, align 4")


def _store(emitter: Any, expr: Call) -> str:
    fragment = _of(emitter, expr, 0)
    kind, letter = _kind(fragment)
    words = words_of(fragment)
    space, way, address = _address(emitter, element_of(expr.args[5]))
    text = (
        f"wmma.store.d.sync.aligned.{_layout(expr)}.{_shape(fragment)}{space}."
        f"{_memory_type(fragment)} [$0], {box(2, words)}, $1;"
    )
    held = _loaded(emitter, _places(emitter, expr, 0, fragment), kind)
    write_asm(
        emitter, text, ",".join([way, "r", *[letter] * words]), address,
        f"i32 {emitter.expr(build.cast('int32', expr.args[6]))}", *held,
    )
    return zero(expr.dtype)


def _multiply(emitter: Any, expr: Call) -> str:
    d, a, b, c = (_of(emitter, expr, place) for place in (0, 2, 4, 6))
    if not d.shape == a.shape == b.shape == c.shape or a.dtype != b.dtype:
        raise ValueError(
            f"{emitter.name}: {expr.op} multiplies {a.dtype} of {a.shape} with {b.dtype} of "
            f"{b.shape} for {d.dtype} of {d.shape}; their types, and m, n and k, must be the same"
        )
    _check(emitter, a.dtype, a.shape)
    sums = {"float16": ("float16", "float32"), "int8": ("int32",), "uint8": ("int32",)}
    if d.dtype != c.dtype or str(d.dtype) not in sums.get(str(a.dtype), ("float32",)):
        raise ValueError(f"{emitter.name}: {expr.op} of {a.dtype} has no sums of {d.dtype}")
    layouts = ".".join(each.layout.removesuffix("_major") for each in (a, b))
    types = {
        "float16": f"{_NAMES[str(d.dtype)]}.{_NAMES[str(c.dtype)]}", "float32": "f32.tf32.tf32.f32",
        "bfloat16": "f32.bf16.bf16.f32", "int8": "s32.s8.s8.s32", "uint8": "s32.u8.u8.s32",
    }[str(a.dtype)]
    kind, letter = _kind(d)
    words = words_of(d)
    inputs = [(a, 2), (b, 4), (c, 6)]
    given = [_loaded(emitter, _places(emitter, expr, place, each), _kind(each)[0])
             for each, place in inputs]
    starts = [words, words + len(given[0]), words + len(given[0]) + len(given[1])]
    text = (
        f"wmma.mma.sync.aligned.{layouts}.{_shape(d)}.{types} {box(0, words)}, "
        + ", ".join(box(start, len(part)) for start, part in zip(starts, given, strict=True)) + ";"
    )
    operands = [each for part in given for each in part]
    constraints = [f"={letter}"] * words + [
        _kind(each)[1] for (each, _), part in zip(inputs, given, strict=True) for _ in part
    ]
    made = emitter.writer.value(
        f'call {_result(kind, words)} asm "{text}", "{",".join(constraints)}"'
        f'({", ".join(operands)}) convergent nounwind'
    )
    _put(emitter, kind, made, _places(emitter, expr, 0, d))
    return zero(expr.dtype)


# ---- by PTX's names ----

_PTX_NAMES = {
    "fp16": "f16", "float16": "f16", "bfloat16": "bf16", "fp32": "f32", "float32": "f32",
    "int8": "s8", "uint8": "u8", "int32": "s32",
}
_BITS = {"f16": 16, "bf16": 16, "tf32": 32, "s8": 8, "u8": 8, "e4m3": 8, "e5m2": 8}
_DEPTHS = {16: (8, 16), 32: (4, 8), 8: (16, 32)}


def _word(expr: Call, place: int) -> str:
    said = expr.args[place]
    if not isinstance(said, StringImm):
        raise ValueError(f"{expr.op} takes text as argument {place}, not {said}")
    return said.value


def _behind(expr: Call, place: int) -> BufferLoad:
    """The element so many elements behind an address."""
    load = element_of(expr.args[place])
    offset = load.buffer.offset_of(load.indices)
    moved = build.add(offset, build.cast(offset.dtype, expr.args[place + 1]))
    return BufferLoad(load.buffer, load.buffer.indices_of(moved))


def _pointer(emitter: Any, load: BufferLoad) -> str:
    made: str = emitter.expr(Call(load.buffer.data.dtype, "address_of", (load,)))
    return made


def _ptx_mma(emitter: Any, expr: Call) -> str:
    shape, left, right, *types = (_word(expr, place) for place in range(6))
    a, b, c = (_PTX_NAMES.get(name, name) for name in types)
    depth = int(shape.removeprefix("m16n8k")) if shape.startswith("m16n8k") else 0
    bits = _BITS.get(a, 0)
    known = depth in _DEPTHS.get(bits, ()) and _BITS.get(b) == bits
    if (left, right) != ("row", "col") or not known:
        raise ValueError(
            f"{emitter.name}: ptx_mma has m16n8k8 and m16n8k16 of fp16 and bf16, m16n8k4 and "
            f"m16n8k8 of tf32, m16n8k16 and m16n8k32 of int8 and uint8, row by col; not {shape} of "
            f"{types[0]}, {left} by {right}"
        )
    emitter.need(Needs(75 if (a, depth) == ("f16", 8) else 80, 70), f"mma of {a}")
    words = depth * bits * 16 // 32 // WARP
    halves = c == "f16"
    kind, letter, count = ("i32", "r", 2) if halves else (
        ("float", "f", 4) if c == "f32" else ("i32", "r", 4))
    sums = array_of(emitter, kind, _pointer(emitter, _behind(expr, 10)), count)
    first = array_of(emitter, "i32", _pointer(emitter, _behind(expr, 6)), words)
    second = array_of(emitter, "i32", _pointer(emitter, _behind(expr, 8)), words // 2)
    given = [*_loaded(emitter, first, "i32"), *_loaded(emitter, second, "i32"),
             *_loaded(emitter, sums, kind)]
    saturate = ".satfinite" if build.is_const(expr.args[12], 1) and c == "s32" else ""
    text = (
        f"mma.sync.aligned.{shape}.row.col{saturate}.{c}.{a}.{b}.{c} {box(0, count)}, "
        f"{box(count, words)}, {box(count + words, words // 2)}, {box(0, count)};"
    )
    constraints = [f"={letter}"] * count + ["r"] * (words + words // 2)
    constraints += [str(number) for number in range(count)]
    made = emitter.writer.value(
        f'call {_result(kind, count)} asm "{text}", "{",".join(constraints)}"'
        f'({", ".join(given)}) convergent nounwind'
    )
    put_results(emitter, kind, made, sums)
    return zero(expr.dtype)


def _ptx_ldmatrix(emitter: Any, expr: Call) -> str:
    transposed, count = ".trans" if number_of(expr, 0) else "", number_of(expr, 1)
    if count not in (1, 2, 4) or _word(expr, 2) not in (".b16", "b16"):
        raise ValueError(f"{emitter.name}: ptx_ldmatrix loads 1, 2 or 4 matrices of .b16: {expr}")
    source = _behind(expr, 5)
    if not is_shared(source.buffer.scope):
        raise ValueError(f"{emitter.name}: ptx_ldmatrix reads shared memory, not {source.buffer}")
    _, _, address = _address(emitter, source)
    made = write_asm(
        emitter,
        f"ldmatrix.sync.aligned.m8n8.x{count}{transposed}.shared.b16 {box(0, count)}, [${count}];",
        ",".join(["=r"] * count + ["r"]), address, result=_result("i32", count),
    )
    _put(emitter, "i32", made,
         array_of(emitter, "i32", _pointer(emitter, _behind(expr, 3)), count))
    return zero(expr.dtype)


def _ptx_cp_async(emitter: Any, expr: Call) -> str:
    size = number_of(expr, 4)
    if size not in (4, 8, 16):
        raise ValueError(f"{emitter.name}: ptx_cp_async copies 4, 8 or 16 bytes, not {size}")
    _, _, to = _address(emitter, _behind(expr, 0))
    source = f"ptr {_pointer(emitter, _behind(expr, 2))}"
    way = "cg" if size == 16 else "ca"
    if len(expr.args) == 5:
        write_asm(emitter, f"cp.async.{way}.shared.global [$0], [$1], {size};", "r,l", to, source)
        return zero(expr.dtype)
    taken = emitter.expr(build.cast("int32", expr.args[5]) * size)
    write_asm(emitter, f"cp.async.{way}.shared.global [$0], [$1], {size}, $2;", "r,l,r", to, source,
              f"i32 {taken}")
    return zero(expr.dtype)


def _commit(emitter: Any, expr: Call) -> str:
    write_asm(emitter, "cp.async.commit_group;", "")
    return zero(expr.dtype)


def _wait(emitter: Any, expr: Call) -> str:
    write_asm(emitter, f"cp.async.wait_group {number_of(expr, 0)};", "")
    return zero(expr.dtype)


_COPIES = Needs(80, 70)
FRAGMENTS = {
    F.FILL: DeviceIntrinsic(_fill),
    F.LOAD: DeviceIntrinsic(_load, Needs(70, 63)),
    F.STORE: DeviceIntrinsic(_store, Needs(70, 63)),
    F.MULTIPLY: DeviceIntrinsic(_multiply, Needs(70, 63)),
    F.PTX_MMA: DeviceIntrinsic(_ptx_mma),
    F.PTX_LDMATRIX: DeviceIntrinsic(_ptx_ldmatrix, Needs(75, 65)),
    F.PTX_CP_ASYNC: DeviceIntrinsic(_ptx_cp_async, _COPIES),
    F.COMMIT: DeviceIntrinsic(_commit, _COPIES),
    F.WAIT: DeviceIntrinsic(_wait, _COPIES),
}
