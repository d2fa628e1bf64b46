"""PTX of products whose first factor is in registers. Meaning: sterna/tir/register_products.py."""

from collections.abc import Callable
from typing import Any

from sterna.codegen.llvm.convert import zero
from sterna.codegen.nvptx.architecture import Needs
from sterna.codegen.nvptx.intrinsics import DeviceIntrinsic
from sterna.codegen.nvptx.warpgroups import write_asm
from sterna.ir import build
from sterna.ir.expr import Call, StringImm

# How PTX calls types of operands, and how many of them a product takes along the sum.
_NAMES = {"bfloat16": ("bf16", 16), "float16": ("f16", 16), "float32": ("tf32", 8)}
_WORDS = 4


def _wgmma_registers(emitter: Any, expr: Call) -> str:
    kind, writer = expr.args[0], emitter.writer
    assert isinstance(kind, StringImm)
    columns, adds, along = (build.int_value(expr.args[place]) for place in (1, 5, 6))
    assert columns is not None
    (name, depth), count = _NAMES[kind.value], columns // 2
    sums, words, b = (emitter.expr(expr.args[place]) for place in (2, 3, 4))

    def places(of: str, register: str, number: int) -> list[str]:
        return [
            writer.value(f"getelementptr inbounds {register}, ptr {of}, i64 {place}")
            for place in range(number)
        ]

    totals = places(sums, "float", count)
    # Sums that begin anew depend on nothing: whatever is defined among products would part them.
    old = ["float undef"] * count if adds == 0 else [
        f"float {writer.value(f'load float, ptr {place}, align 4')}" for place in totals
    ]
    own = [
        f"i32 {writer.value(f'load i32, ptr {place}, align 4')}"
        for place in places(words, "i32", _WORDS)
    ]
    inside = ", ".join(f"${place}" for place in range(count))
    given = ", ".join(f"${count + place}" for place in range(_WORDS))
    scale = "p" if adds is None else str(adds)
    order = "" if kind.value == "float32" else f", {along}"
    text = (
        f"wgmma.mma_async.sync.aligned.m64n{columns}k{depth}.f32.{name}.{name} {{{inside}}}, "
        f"{{{given}}}, ${count + _WORDS}, {scale}, 1, 1{order};"
    )
    tied = [str(number) for number in range(count)]
    inputs = ["r"] * _WORDS + ["l"]
    own.append(f"i64 {b}")
    if adds is None:
        text = f"{{ .reg .pred p; setp.ne.b32 p, ${count + _WORDS + 1}, 0; {text} }}"
        own.append(f"i32 {emitter.expr(expr.args[5])}")
        inputs.append("r")
    constraints = ["=f"] * count + inputs + tied
    result = "{" + ", ".join(["float"] * count) + "}"
    made = write_asm(
        emitter, text, ",".join(constraints), *own, *old, result=result
    )
    for number, place in enumerate(totals):
        value = writer.value(f"extractvalue {result} {made}, {number}")
        writer.emit(f"store float {value}, ptr {place}, align 4")
    return zero(expr.dtype)


def _settle(emitter: Any, expr: Call) -> str:
    """Nothing, through which registers go."""
    address, writer = expr.args[0], emitter.writer
    assert isinstance(address, Call)
    kind, letter = ("float", "f") if address.args[0].dtype.is_float else ("i32", "r")
    first, count = emitter.expr(address), build.int_value(expr.args[1])
    assert count is not None
    places = [
        writer.value(f"getelementptr inbounds {kind}, ptr {first}, i64 {number}")
        for number in range(count)
    ]
    old = [f"{kind} {writer.value(f'load {kind}, ptr {place}, align 4')}" for place in places]
    constraints = [f"={letter}"] * count + [str(number) for number in range(count)]
    result = "{" + ", ".join([kind] * count) + "}" if count > 1 else kind
    made = write_asm(emitter, "", ",".join(constraints), *old, result=result)
    for number, place in enumerate(places):
        value = writer.value(f"extractvalue {result} {made}, {number}") if count > 1 else made
        writer.emit(f"store {kind} {value}, ptr {place}, align 4")
    return zero(expr.dtype)


def _loaded(
    emitter: Any, expr: Call, text: str, source: str, count: int, kind: str = "float"
) -> str:
    """Load so many floats, or words, into private memory."""
    to = emitter.expr(expr.args[0])
    result = "{" + ", ".join([kind] * count) + "}"
    letter = "r" if source.startswith("i32") else "l"
    constraints = ",".join(["=f" if kind == "float" else "=r"] * count + [letter])
    made = write_asm(emitter, text, constraints, source, result=result)
    for number in range(count):
        value = emitter.writer.value(f"extractvalue {result} {made}, {number}")
        place = emitter.writer.value(f"getelementptr inbounds {kind}, ptr {to}, i64 {number}")
        emitter.writer.emit(f"store {kind} {value}, ptr {place}, align 4")
    return zero(expr.dtype)


def _load_float(emitter: Any, expr: Call) -> str:
    to, source = (emitter.expr(arg) for arg in expr.args)
    made = write_asm(emitter, "ld.shared.f32 $0, [$1];", "=f,r", f"i32 {source}", result="float")
    emitter.writer.emit(f"store float {made}, ptr {to}, align 4")
    return zero(expr.dtype)


def _load_pair(emitter: Any, expr: Call) -> str:
    source = f"i32 {emitter.expr(expr.args[1])}"
    return _loaded(emitter, expr, "ld.shared.v2.f32 {$0, $1}, [$2];", source, 2)


def _fetch_quad(emitter: Any, expr: Call) -> str:
    source = f"ptr {emitter.expr(expr.args[1])}"
    return _loaded(emitter, expr, "ld.global.v4.f32 {$0, $1, $2, $3}, [$4];", source, 4)


def _fetch_once(emitter: Any, expr: Call) -> str:
    source = f"ptr {emitter.expr(expr.args[1])}"
    text = "ld.global.L1::no_allocate.v4.b32 {$0, $1, $2, $3}, [$4];"
    return _loaded(emitter, expr, text, source, 4, "i32")


def _keep_words(emitter: Any, expr: Call) -> str:
    to, *words = [emitter.expr(arg) for arg in expr.args]
    write_asm(emitter, "st.shared.v4.b32 [$0], {$1, $2, $3, $4};", "r,r,r,r,r",
              f"i32 {to}", *[f"i32 {word}" for word in words])
    return zero(expr.dtype)


def _store_words(emitter: Any, expr: Call) -> str:
    to, *words = [emitter.expr(arg) for arg in expr.args]
    write_asm(emitter, "st.global.v4.b32 [$0], {$1, $2, $3, $4};", "l,r,r,r,r",
              f"ptr {to}", *[f"i32 {word}" for word in words])
    return zero(expr.dtype)


def _take_ticket(emitter: Any, expr: Call) -> str:
    to, count = (emitter.expr(arg) for arg in expr.args)
    made = write_asm(
        emitter, "atom.global.add.u32 $0, [$1], 1;", "=r,l", f"ptr {count}", result="i32"
    )
    emitter.writer.emit(f"store i32 {made}, ptr {to}, align 4")
    return zero(expr.dtype)


def _add_count(emitter: Any, expr: Call) -> str:
    text = (
        "{ .reg .pred p; .reg .b32 lane; fence.proxy.async; fence.acq_rel.gpu; "
        "bar.warp.sync -1; mov.u32 lane, %laneid; setp.eq.u32 p, lane, 0; "
        "@p red.release.gpu.global.add.u32 [$0], 1; }"
    )
    write_asm(emitter, text, "l", f"ptr {emitter.expr(expr.args[0])}")
    return zero(expr.dtype)


def _await_count(emitter: Any, expr: Call) -> str:
    text = (
        "{ .reg .pred p; .reg .b32 v; again: ld.acquire.gpu.global.u32 v, [$0]; "
        "setp.lt.u32 p, v, $1; @p bra again; fence.proxy.async; }"
    )
    count, wanted = (emitter.expr(arg) for arg in expr.args)
    write_asm(emitter, text, "l,r", f"ptr {count}", f"i32 {wanted}")
    return zero(expr.dtype)


def _floats(name: str) -> Callable[[Any, Call], str]:
    """One instruction of LLVM's on floats, lane by lane."""

    def write(emitter: Any, expr: Call) -> str:
        given = [(arg.dtype, emitter.expr(arg)) for arg in expr.args]
        made: str = emitter.gathered(expr.dtype, [
            emitter.instruction(
                name, "float",
                *[("float", emitter.lane(dtype, operand, lane)) for dtype, operand in given],
            )
            for lane in range(expr.dtype.lanes)
        ])
        return made

    return write


REGISTER_PRODUCTS = {
    "wgmma_registers": DeviceIntrinsic(_wgmma_registers, Needs(90, 83, only=("sm_90a",))),
    "settle": DeviceIntrinsic(_settle),
    "load_float": DeviceIntrinsic(_load_float),
    "load_pair": DeviceIntrinsic(_load_pair),
    "fetch_quad": DeviceIntrinsic(_fetch_quad),
    "fetch_once": DeviceIntrinsic(_fetch_once, Needs(70, 74)),
    "keep_words": DeviceIntrinsic(_keep_words),
    "store_words": DeviceIntrinsic(_store_words),
    "take_ticket": DeviceIntrinsic(_take_ticket),
    "add_count": DeviceIntrinsic(_add_count, Needs(90, 83)),
    "await_count": DeviceIntrinsic(_await_count, Needs(90, 83)),
    "larger": DeviceIntrinsic(_floats("llvm.nvvm.fmax.f")),
    "flushed_exp2": DeviceIntrinsic(_floats("llvm.nvvm.ex2.approx.ftz.f32")),
}
