"""PTX of what a group of warps does together. Meaning: sterna/tir/warpgroups.py.

LLVM has no name for wgmma, so most are PTX as it is written. Sums go in and out of registers by
tied operands: then LLVM puts no copies between products.
"""

from collections.abc import Callable, Mapping
from typing import Any

from sterna.codegen.llvm.convert import zero
from sterna.codegen.nvptx.architecture import Needs
from sterna.codegen.nvptx.intrinsics import DeviceIntrinsic
from sterna.ir import build
from sterna.ir.expr import Call, StringImm

Writer = Callable[[Any, Call], str]

# How PTX calls types of operands, and how many of them a product takes along the sum.
_KINDS = {
    "bfloat16": ("bf16", 16), "float16": ("f16", 16), "float32": ("tf32", 8),
    "int8": ("s8", 32), "uint8": ("u8", 32),
    "float8_e4m3fn": ("e4m3", 32), "float8_e5m2": ("e5m2", 32),
}


def write_asm(
    emitter: Any, text: str, constraints: str, *operands: str, result: str = "void"
) -> str:
    """A piece of PTX that no pass may move or leave out; operands with their types."""
    given = ",".join(part for part in (constraints, "~{memory}") if part)
    arguments = ", ".join(operands)
    call = f'call {result} asm sideeffect "{text}", "{given}"({arguments}) convergent nounwind'
    if result == "void":
        emitter.writer.emit(call)
        return ""
    made: str = emitter.writer.value(call)
    return made


def _plain(text: str, constraints: str = "") -> Writer:
    """One instruction whose operands are the call's arguments."""

    def write(emitter: Any, expr: Call) -> str:
        kinds = {"r": "i32", "n": "i32", "l": "ptr", "f": "float"}
        parts = [part for part in constraints.split(",") if part]
        operands = [
            f"{kinds[part]} {emitter.expr(arg)}"
            for part, arg in zip(parts, expr.args, strict=True)
        ]
        write_asm(emitter, text, constraints, *operands)
        return zero(expr.dtype)

    return write


def number_of(expr: Call, place: int) -> int:
    value = build.int_value(expr.args[place])
    assert value is not None, f"{expr.op} takes a number that is known"
    return value


def _immediate(text: str) -> Writer:
    """One instruction with the call's arguments in its text."""

    def write(emitter: Any, expr: Call) -> str:
        numbers = [number_of(expr, place) for place in range(len(expr.args))]
        write_asm(emitter, text.format(*numbers), "")
        return zero(expr.dtype)

    return write


def box(first: int, count: int) -> str:
    return "{" + ", ".join(f"${first + place}" for place in range(count)) + "}"


def _tma_load(emitter: Any, expr: Call) -> str:
    to, barrier, map_, *at = [emitter.expr(arg) for arg in expr.args]
    text = (
        f"cp.async.bulk.tensor.{len(at)}d.shared::cluster.global.mbarrier::complete_tx::bytes "
        f"[$0], [$2, {box(3, len(at))}], [$1];"
    )
    places = [f"i32 {place}" for place in at]
    write_asm(emitter, text, ",".join(["r", "r", "l", *["r"] * len(at)]),
              f"i32 {to}", f"i32 {barrier}", f"ptr {map_}", *places)
    return zero(expr.dtype)


def _tma_load_im2col(emitter: Any, expr: Call) -> str:
    to, barrier, map_, *at = [emitter.expr(arg) for arg in expr.args]
    pixel, tap = at[:4], at[4:]
    writer = emitter.writer
    taps = [f"i16 {writer.value(f'trunc i32 {place} to i16')}" for place in tap]
    text = (
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
        f"[$0], [$2, {box(3, 4)}], [$1], {box(7, 2)};"
    )
    write_asm(emitter, text, "r,r,l,r,r,r,r,h,h", f"i32 {to}", f"i32 {barrier}", f"ptr {map_}",
              *[f"i32 {place}" for place in pixel], *taps)
    return zero(expr.dtype)


def _tma_store(emitter: Any, expr: Call) -> str:
    map_, source, *at = [emitter.expr(arg) for arg in expr.args]
    text = (
        f"cp.async.bulk.tensor.{len(at)}d.global.shared::cta.bulk_group "
        f"[$0, {box(2, len(at))}], [$1];"
    )
    write_asm(emitter, text, ",".join(["l", "r", *["r"] * len(at)]), f"ptr {map_}",
              f"i32 {source}", *[f"i32 {place}" for place in at])
    return zero(expr.dtype)


def _wgmma(emitter: Any, expr: Call) -> str:
    """The product; a sum that is known to go on has no predicate."""
    kind = expr.args[0]
    assert isinstance(kind, StringImm)
    name, depth = _KINDS[kind.value]
    columns, writer = number_of(expr, 1), emitter.writer
    whole = kind.value in ("int8", "uint8")
    register, letter, total = ("i32", "r", "s32") if whole else ("float", "f", "f32")
    count = columns // 2
    sums, a, b = (emitter.expr(expr.args[place]) for place in (2, 3, 4))
    adds = build.int_value(expr.args[5])
    places = [
        writer.value(f"getelementptr inbounds {register}, ptr {sums}, i64 {number}")
        for number in range(count)
    ]
    # Sums that begin anew depend on nothing: whatever is defined among products would part them.
    old = ["undef"] * count if adds == 0 else [
        writer.value(f"load {register}, ptr {place}, align 4") for place in places
    ]
    scale = "p" if adds is None else str(adds)
    tail = "" if whole else ", 1, 1"
    if kind.value in ("bfloat16", "float16"):
        tail += f", {number_of(expr, 6)}, {number_of(expr, 7)}"
    text = (
        f"wgmma.mma_async.sync.aligned.m64n{columns}k{depth}.{total}.{name}.{name} "
        f"{box(0, count)}, ${count}, ${count + 1}, {scale}{tail};"
    )
    given = [f"i64 {a}", f"i64 {b}"]
    inputs = ["l", "l"]
    if adds is None:
        text = f"{{ .reg .pred p; setp.ne.b32 p, ${count + 2}, 0; {text} }}"
        given.append(f"i32 {emitter.expr(expr.args[5])}")
        inputs.append("r")
    constraints = [f"={letter}"] * count + inputs + [str(number) for number in range(count)]
    made = write_asm(
        emitter, text, ",".join(constraints), *given, *[f"{register} {value}" for value in old],
        result="{" + ", ".join([register] * count) + "}",
    )
    kinds = "{" + ", ".join([register] * count) + "}"
    for number, place in enumerate(places):
        value = writer.value(f"extractvalue {kinds} {made}, {number}")
        writer.emit(f"store {register} {value}, ptr {place}, align 4")
    return zero(expr.dtype)


def _stmatrix(emitter: Any, expr: Call) -> str:
    to, *parts = [emitter.expr(expr.args[place]) for place in (0, *range(2, len(expr.args)))]
    trans, count = ".trans" if number_of(expr, 1) else "", len(parts)
    text = f"stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [$0], {box(1, count)};"
    constraints = ",".join(["r"] * (count + 1))
    write_asm(emitter, text, constraints, f"i32 {to}", *[f"i32 {part}" for part in parts])
    return zero(expr.dtype)


def array_of(emitter: Any, kind: str, address: str, count: int) -> list[str]:
    """The places of an array in private memory."""
    return [
        emitter.writer.value(f"getelementptr inbounds {kind}, ptr {address}, i64 {number}")
        for number in range(count)
    ]


def put_results(emitter: Any, kind: str, made: str, places: list[str]) -> None:
    """Store what an instruction gives into private memory."""
    kinds = "{" + ", ".join([kind] * len(places)) + "}"
    for number, place in enumerate(places):
        value = emitter.writer.value(f"extractvalue {kinds} {made}, {number}")
        emitter.writer.emit(f"store {kind} {value}, ptr {place}, align 4")


def _ldmatrix(emitter: Any, expr: Call) -> str:
    to, source = (emitter.expr(arg) for arg in expr.args)
    made = write_asm(
        emitter, f"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {box(0, 4)}, [$4];",
        "=r,=r,=r,=r,r", f"i32 {source}", result="{i32, i32, i32, i32}",
    )
    put_results(emitter, "i32", made, array_of(emitter, "i32", to, 4))
    return zero(expr.dtype)


def _mma(emitter: Any, expr: Call) -> str:
    kind = expr.args[0]
    assert isinstance(kind, StringImm)
    (name, depth), writer = _KINDS[kind.value], emitter.writer
    sums, a, b = (emitter.expr(arg) for arg in expr.args[1:])
    places = array_of(emitter, "float", sums, 4)
    words = [*array_of(emitter, "i32", a, 4), *array_of(emitter, "i32", b, 2)]
    given = [f"i32 {writer.value(f'load i32, ptr {word}, align 4')}" for word in words]
    given += [f"float {writer.value(f'load float, ptr {place}, align 4')}" for place in places]
    text = (
        f"mma.sync.aligned.m16n8k{depth}.row.col.f32.{name}.{name}.f32 "
        f"{box(0, 4)}, {box(4, 4)}, {box(8, 2)}, {box(0, 4)};"
    )
    made = writer.value(
        f'call {{float, float, float, float}} asm "{text}", "=f,=f,=f,=f,r,r,r,r,r,r,0,1,2,3"'
        f'({", ".join(given)}) convergent nounwind'
    )
    put_results(emitter, "float", made, places)
    return zero(expr.dtype)


def _pack_pair(emitter: Any, expr: Call) -> str:
    kind = expr.args[2]
    assert isinstance(kind, StringImm)
    low, high = (emitter.expr(arg) for arg in expr.args[:2])
    name = _KINDS[kind.value][0]
    made: str = emitter.writer.value(
        f'call i32 asm "cvt.rn.{name}x2.f32 $0, $1, $2;", "=r,f,f"(float {high}, float {low})'
    )
    return made


def _shared_address(emitter: Any, expr: Call) -> str:
    address = expr.args[0]
    assert isinstance(address, Call)
    place = emitter.shared_address(address.args[0])
    made: str = emitter.writer.value(f"ptrtoint ptr addrspace(3) {place} to i32")
    return made


def _copy_chunk(emitter: Any, expr: Call) -> str:
    to, source = (emitter.expr(arg) for arg in expr.args)
    text = (
        "{ .reg .b32 a, b, c, d; ld.shared.v4.b32 {a, b, c, d}, [$1]; "
        "st.global.v4.b32 [$0], {a, b, c, d}; }"
    )
    write_asm(emitter, text, "l,r", f"ptr {to}", f"i32 {source}")
    return zero(expr.dtype)


def _load_quad(emitter: Any, expr: Call) -> str:
    to, source = (emitter.expr(arg) for arg in expr.args)
    kinds = "{float, float, float, float}"
    made = write_asm(
        emitter, f"ld.shared.v4.f32 {box(0, 4)}, [$4];", "=f,=f,=f,=f,r", f"i32 {source}",
        result=kinds,
    )
    for number in range(4):
        value = emitter.writer.value(f"extractvalue {kinds} {made}, {number}")
        place = emitter.writer.value(f"getelementptr inbounds float, ptr {to}, i64 {number}")
        emitter.writer.emit(f"store float {value}, ptr {place}, align 4")
    return zero(expr.dtype)


def _send_quad(emitter: Any, expr: Call) -> str:
    to, source, barrier = (emitter.expr(arg) for arg in expr.args)
    values: list[str] = []
    for number in range(4):
        place = emitter.writer.value(f"getelementptr inbounds float, ptr {source}, i64 {number}")
        values.append(f"float {emitter.writer.value(f'load float, ptr {place}, align 4')}")
    text = (
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 "
        f"[$0], {box(2, 4)}, [$1];"
    )
    write_asm(emitter, text, "r,r,f,f,f,f", f"i32 {to}", f"i32 {barrier}", *values)
    return zero(expr.dtype)


def _multiply_quads(emitter: Any, expr: Call) -> str:
    sums, a, b = (emitter.expr(arg) for arg in expr.args[:3])
    rows, columns, by_steps = (number_of(expr, place) for place in (3, 4, 5))
    writer = emitter.writer
    writer.module.declare("llvm.fma.f32", "float", "float, float, float")

    def element(array: str, number: int) -> str:
        made: str = writer.value(f"getelementptr inbounds float, ptr {array}, i64 {number}")
        return made

    def loaded(array: str, count: int) -> list[str]:
        places = [element(array, number) for number in range(count)]
        return [writer.value(f"load float, ptr {place}, align 4") for place in places]

    left, right = loaded(a, rows * 4), loaded(b, columns * 4)
    totals = loaded(sums, rows * columns)
    for step in range(4):
        for column in range(columns):
            factor = right[step * columns + column if by_steps else column * 4 + step]
            for row in range(rows):
                at = column * rows + row
                operands = f"float {left[row * 4 + step]}, float {factor}, float {totals[at]}"
                totals[at] = writer.value(f"call float @llvm.fma.f32({operands})")
    for number, total in enumerate(totals):
        writer.emit(f"store float {total}, ptr {element(sums, number)}, align 4")
    return zero(expr.dtype)


def _blocks_at_once(emitter: Any, expr: Call) -> str:
    emitter.least_blocks = number_of(expr, 0)
    return zero(expr.dtype)


def _cluster_size(emitter: Any, expr: Call) -> str:
    emitter.cluster = number_of(expr, 0)
    return zero(expr.dtype)


def _registers(emitter: Any, expr: Call) -> str:
    way = "inc" if number_of(expr, 1) else "dec"
    write_asm(emitter, f"setmaxnreg.{way}.sync.aligned.u32 {number_of(expr, 0)};", "")
    return zero(expr.dtype)


def _pure(text: str, *constraints: str) -> Writer:
    """One instruction that gives an integer and does nothing else."""

    def write(emitter: Any, expr: Call) -> str:
        operands = ", ".join(f"i32 {emitter.expr(arg)}" for arg in expr.args)
        made: str = emitter.writer.value(
            f'call i32 asm "{text}", "{",".join(("=r", *constraints))}"({operands})'
        )
        return made

    return write


def _first_lane(emitter: Any, expr: Call) -> str:
    value = emitter.expr(expr.args[0])
    return write_asm(
        emitter, "shfl.sync.idx.b32 $0, $1, 0, 31, -1;", "=r,r", f"i32 {value}", result="i32"
    )


_WAIT = (
    "{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1; "
    "@!p bra again; }"
)

_WRITERS: Mapping[str, Writer] = {
    "tma_prefetch": _plain("prefetch.tensormap [$0];", "l"),
    "tma_load": _tma_load,
    "tma_load_im2col": _tma_load_im2col,
    "tma_store": _tma_store,
    "tma_commit": _plain("cp.async.bulk.commit_group;"),
    "tma_wait_read": _immediate("cp.async.bulk.wait_group.read {};"),
    "mbarrier_init": _plain("mbarrier.init.shared::cta.b64 [$0], $1;", "r,r"),
    "mbarrier_ready": _plain("fence.mbarrier_init.release.cluster;"),
    "mbarrier_expect": _plain("mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", "r,r"),
    "mbarrier_arrive": _plain("mbarrier.arrive.shared::cta.b64 _, [$0];", "r"),
    "mbarrier_wait": _plain(_WAIT, "r,r"),
    "wgmma": _wgmma,
    "wgmma_fence": _plain("wgmma.fence.sync.aligned;"),
    "wgmma_commit": _plain("wgmma.commit_group.sync.aligned;"),
    "wgmma_wait": _immediate("wgmma.wait_group.sync.aligned {};"),
    "shared_address": _shared_address,
    "copy_in": _plain("cp.async.cg.shared.global [$0], [$1], 16, $2;", "r,l,r"),
    "copy_in_commit": _plain("cp.async.commit_group;"),
    "copy_in_wait": _immediate("cp.async.wait_group {};"),
    "ldmatrix": _ldmatrix,
    "mma": _mma,
    "stmatrix": _stmatrix,
    "pack_pair": _pack_pair,
    "copy_chunk": _copy_chunk,
    "store_word": _plain("st.global.b32 [$0], $1;", "l,r"),
    "store_pair": _plain("st.global.v2.f32 [$0], {$1, $2};", "l,f,f"),
    "keep_pair": _plain("st.shared.v2.f32 [$0], {$1, $2};", "r,f,f"),
    "load_quad": _load_quad,
    "send_quad": _send_quad,
    "multiply_quads": _multiply_quads,
    "blocks_at_once": _blocks_at_once,
    "cluster_size": _cluster_size,
    "cluster_rank": _pure("mov.u32 $0, %cluster_ctarank;"),
    "cluster_address": _pure("mapa.shared::cluster.u32 $0, $1, $2;", "r", "r"),
    "cluster_arrive": _plain("barrier.cluster.arrive.relaxed;"),
    "cluster_wait": _plain("barrier.cluster.wait;"),
    "registers": _registers,
    "first_lane": _first_lane,
    "warp_sync": _plain("bar.warp.sync -1;"),
    "named_barrier": _plain("bar.sync $0, $1;", "r,n"),
    "named_arrive": _plain("bar.arrive $0, $1;", "r,n"),
    "async_fence": _plain("fence.proxy.async.shared::cta;"),
    "launch_dependents": _plain("griddepcontrol.launch_dependents;"),
    "wait_for_grids": _plain("griddepcontrol.wait;"),
}

_HOPPER_ALONE, _HOPPER = Needs(90, 83, only=("sm_90a",)), Needs(90, 83)
_NEEDS = {
    "launch_dependents": Needs(90, 78), "wait_for_grids": Needs(90, 78),
    "registers": _HOPPER_ALONE, "blocks_at_once": Needs(),
    **dict.fromkeys(
        ("copy_in", "copy_in_commit", "copy_in_wait", "ldmatrix", "mma", "shared_address",
         "store_word", "store_pair", "keep_pair", "pack_pair"), Needs(80, 70)
    ),
    **{name: _HOPPER_ALONE for name in _WRITERS if name.startswith("wgmma")},
}

WARPGROUPS = {
    name: DeviceIntrinsic(write, _NEEDS.get(name, _HOPPER)) for name, write in _WRITERS.items()
}
