"""What a Call in a kernel may name beside the functions that all machines have.

A row is a function from the emitter and the call to the operand that holds the result ("0" where
there is none, None where the call is written as for other machines), and what the instruction
needs. Other files beside this one have rows of their own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sterna.codegen.llvm import convert
from sterna.codegen.llvm.types import value_type
from sterna.codegen.nvptx.architecture import NOTHING, Needs
from sterna.ir import build
from sterna.ir.expr import Call, Expr, StringImm
from sterna.support.dtype import DataType

if TYPE_CHECKING:
    from sterna.codegen.nvptx.kernel import KernelEmitter

Write = Callable[["KernelEmitter", Call], str | None]


@dataclass(frozen=True, slots=True)
class DeviceIntrinsic:
    """How a GPU does what a Call names."""

    write: Write
    needs: Needs = NOTHING


# ---- threads of a block and of a warp ----


def _storage_sync(emitter: "KernelEmitter", call: Call) -> str:
    scope = call.args[0]
    of_warp = isinstance(scope, StringImm) and scope.value == "warp"
    if of_warp or emitter.waits_in_warps:
        emitter.need(_OF_WARPS, "storage_sync of a warp")
        threads = _WARP if of_warp or emitter.launch is None else emitter.launch.block_size or _WARP
        lanes = -1 if threads >= _WARP else (1 << threads) - 1
        return emitter.instruction("llvm.nvvm.bar.warp.sync", "void", ("i32", str(lanes)))
    return emitter.instruction("llvm.nvvm.barrier.cta.sync.aligned.all", "void", ("i32", "0"))


_WARP = 32
_OF_WARPS = Needs(30, 60)


def _shuffle(kind: str) -> Write:
    """A value of another lane: tvm_warp_shuffle*(mask, value, lane or distance, width, 32)."""

    def write(emitter: "KernelEmitter", call: Call) -> str:
        mask, value, lane, width, _ = call.args
        lanes = build.int_value(width)
        if lanes is None or lanes not in (1, 2, 4, 8, 16, 32):
            raise ValueError(
                f"{emitter.name}: {call.op} is among lanes whose number is a power of two up to "
                f"{_WARP}, not {width}"
            )
        # The lanes that count as one group, and the last one of a group, which is not passed.
        bound = (_WARP - lanes) << 8 | (0 if kind == "up" else _WARP - 1)
        chosen, among = emitter.expr(lane), emitter.expr(mask)
        return _in_words(
            emitter, value,
            lambda word: emitter.instruction(
                f"llvm.nvvm.shfl.sync.{kind}.i32", "i32", ("i32", among), ("i32", word),
                ("i32", chosen), ("i32", str(bound)),
            ),
        )

    return write


def _in_words(emitter: "KernelEmitter", value: Expr, through: Callable[[str], str]) -> str:
    """A value of any type, by what takes words of 32 bits."""
    writer, dtype = emitter.writer, value.dtype
    kind, operand = value_type(dtype), emitter.expr(value)
    bits = dtype.lanes * (1 if dtype.is_bool else dtype.bits)
    words = -(-bits // 32)
    whole = writer.value(f"bitcast {kind} {operand} to i{bits}")
    if bits != 32 * words:
        whole = writer.value(f"zext i{bits} {whole} to i{32 * words}")
    if words == 1:
        whole = through(whole)
    else:
        parts = writer.value(f"bitcast i{32 * words} {whole} to <{words} x i32>")
        for number in range(words):
            word = writer.value(f"extractelement <{words} x i32> {parts}, i64 {number}")
            parts = writer.value(
                f"insertelement <{words} x i32> {parts}, i32 {through(word)}, i64 {number}"
            )
        whole = writer.value(f"bitcast <{words} x i32> {parts} to i{32 * words}")
    if bits != 32 * words:
        whole = writer.value(f"trunc i{32 * words} {whole} to i{bits}")
    return writer.value(f"bitcast i{bits} {whole} to {kind}")


def _active_lanes(emitter: "KernelEmitter", call: Call) -> str:
    return emitter.instruction("llvm.nvvm.activemask", "i32")


# ---- numbers ----

_BYTES = 4


def _dot4(emitter: "KernelEmitter", call: Call) -> str | None:
    """dp4a, a lane at a time."""
    if emitter.module.architecture.number < 61:
        return _dot4_of_bytes(emitter, call)
    emitter.need(Needs(61, 50), "dp4a")
    total, a, b = call.args
    signs = ".".join("s" if each.dtype.is_int else "u" for each in (a, b))
    operand, (first, second) = emitter.expr(total), (emitter.expr(a), emitter.expr(b))
    found = []
    for lane in range(call.dtype.lanes):
        words = [_word(emitter, each.dtype, held, lane)
                 for each, held in ((a, first), (b, second))]
        found.append(emitter.instruction(
            f"llvm.nvvm.idp4a.{signs}", "i32", ("i32", words[0]), ("i32", words[1]),
            ("i32", emitter.lane(total.dtype, operand, lane)),
        ))
    return emitter.gathered(call.dtype, found)


def _word(emitter: "KernelEmitter", dtype: DataType, operand: str, lane: int) -> str:
    """The four bytes of a lane; those of one lane serve all."""
    count = dtype.lanes // _BYTES
    kind = "i32" if count == 1 else f"<{count} x i32>"
    words = emitter.writer.value(f"bitcast {value_type(dtype)} {operand} to {kind}")
    return emitter.lane(DataType("int32").with_lanes(count), words, lane % count)


def _dot4_of_bytes(emitter: "KernelEmitter", call: Call) -> str:
    total, a, b = call.args
    operand, held = emitter.expr(total), [(each.dtype, emitter.expr(each)) for each in (a, b)]
    found = []
    for lane in range(call.dtype.lanes):
        result = emitter.lane(total.dtype, operand, lane)
        for place in range(_BYTES):
            factors = [
                convert.cast(
                    emitter.writer, dtype.element, DataType("int32"),
                    emitter.lane(dtype, value, (_BYTES * lane + place) % dtype.lanes),
                )
                for dtype, value in held
            ]
            product = emitter.writer.value(f"mul i32 {factors[0]}, {factors[1]}")
            result = emitter.writer.value(f"add i32 {result}, {product}")
        found.append(result)
    return emitter.gathered(call.dtype, found)


def _nothing(emitter: "KernelEmitter", call: Call) -> str:
    return convert.zero(call.dtype)


DEVICE_INTRINSICS: dict[str, DeviceIntrinsic] = {
    "storage_sync": DeviceIntrinsic(_storage_sync),
    "tvm_warp_shuffle": DeviceIntrinsic(_shuffle("idx"), _OF_WARPS),
    "tvm_warp_shuffle_up": DeviceIntrinsic(_shuffle("up"), _OF_WARPS),
    "tvm_warp_shuffle_down": DeviceIntrinsic(_shuffle("down"), _OF_WARPS),
    "tvm_warp_shuffle_xor": DeviceIntrinsic(_shuffle("bfly"), _OF_WARPS),
    "tvm_warp_activemask": DeviceIntrinsic(_active_lanes, Needs(30, 62)),
    "dot4": DeviceIntrinsic(_dot4),
    "prefetch": DeviceIntrinsic(_nothing),
}
