"""Checks of packed arguments that are arrays: a table of what is wanted, and one loop over it.

Kernels check every array that they are given. A branch and a message for each property of each
array would be more code than most kernels are, and so would a call for each array: LLVM would spend
more time on it than on many a kernel's loops.
"""

from collections.abc import Sequence

from sterna.codegen.llvm import host
from sterna.codegen.llvm.emitter import ATTRIBUTES, MAKES_ERRORS, ModuleWriter
from sterna.codegen.llvm.layouts import ANY, TENSOR
from sterna.ir import build
from sterna.ir.expr import Call
from sterna.ir.node import Node, post_order
from sterna.tir import wanted_array as words
from sterna.tir.stmt import AssertStmt, AttrStmt, Evaluate, LetStmt, SeqStmt, Stmt
from sterna.tir.wanted_array import MESSAGE_BYTES, WantedArray

_EXTENT = "{ i64, ptr }"
"""An extent, or -1, and what to say where it is another."""
_WANTED = "{ ptr, ptr, ptr, ptr, ptr, i32, i32, i32, i32, ptr, i32 }"
"""The function's and the argument's names, dimensions and type in words, extents, type, ndim,
whether it is written to, the type of device and that in words, the argument's place."""
(_FUNCTION, _ARGUMENT, _DIMENSIONS, _TYPE_TEXT, _EXTENTS, _TYPE, _NDIM, _IS_WRITTEN, _DEVICE,
 _DEVICE_TEXT, _PLACE) = range(11)


class ArrayChecks:
    """The checks that a packed function begins with, and what else it asks its arrays for."""

    def __init__(self, body: Stmt) -> None:
        self.calls: list[Call] = []
        """The checks that are made in any case, before anything else is done."""
        self.described: set[int] = set()
        """The identities of the variables of tensors that more is read of than their address."""
        self._collect(body)
        if self.calls:
            post_order(body, self._note_use)

    def _collect(self, stmt: Stmt) -> bool:
        """Take the checks of a statement; whether what follows it may be checked with them."""
        while isinstance(stmt, LetStmt | AttrStmt):
            stmt = stmt.body
        if isinstance(stmt, SeqStmt):
            return all(self._collect(each) for each in stmt.stmts)
        if isinstance(stmt, AssertStmt):
            return True
        call = stmt.value if isinstance(stmt, Evaluate) else None
        if not isinstance(call, Call) or call.op != "check_array":
            return False
        self.calls.append(call)
        return True

    def _note_use(self, node: Node) -> None:
        if isinstance(node, Call) and node.op.startswith("tensor_") and node.op != "tensor_data":
            self.described.add(id(node.args[0]))


def place_of(call: Call) -> int:
    """Which argument a call asks about."""
    place = build.int_value(call.args[1])
    assert place is not None, "arguments are asked for by their numbers"
    return place


def wanted_table(module: ModuleWriter, checks: Sequence[Call]) -> str:
    """The constant that says what check_arrays checks."""
    rows = ", ".join([f"{_WANTED} {_wanted_row(module, call)}" for call in checks])
    table = f"@wanted.{len(module.globals)}"
    module.globals.append(
        f"{table} = private unnamed_addr constant [{len(checks)} x {_WANTED}] [{rows}]"
    )
    return table


def _wanted_row(module: ModuleWriter, call: Call) -> str:
    wanted = WantedArray.of(call)
    rows = [
        f"{_EXTENT} {{ i64 {extent}, ptr {module.string(wanted.extent_text(dim))} }}"
        for dim, extent in enumerate(wanted.extents)
    ]
    extents = f"@extents.{len(module.globals)}"
    texts = (wanted.function, wanted.argument, wanted.dimensions, str(wanted.dtype))
    named = ", ".join([f"ptr {module.string(text)}" for text in texts])
    module.globals.append(
        f"{extents} = private unnamed_addr constant [{len(rows)} x {_EXTENT}] [{', '.join(rows)}]"
    )
    return (
        f"{{ {named}, ptr {extents}, i32 {wanted.type_code}, i32 {len(rows)}, "
        f"i32 {int(wanted.is_written)}, i32 {wanted.device_type}, "
        f"ptr {module.string(wanted.device)}, i32 {place_of(call)} }}"
    )


def wrong_argument(module: ModuleWriter) -> str:
    """i32 (ptr kind, ptr wanted, ptr words, ptr end): sets an error and returns -1."""

    def write() -> str:
        return f"""\
entry:
  %message = alloca [{MESSAGE_BYTES} x i8], align 1
  %last = getelementptr i8, ptr %message, i32 {MESSAGE_BYTES - 1}
  %function = load ptr, ptr %wanted
  %argument.at = getelementptr inbounds {_WANTED}, ptr %wanted, i32 0, i32 {_ARGUMENT}
  %argument = load ptr, ptr %argument.at
  br label %part
part:
  %text = phi ptr [ %function, %entry ], [ %second, %ended ]
  %second = phi ptr [ %argument, %entry ], [ %third, %ended ]
  %third = phi ptr [ %words, %entry ], [ %end, %ended ]
  %parts = phi i32 [ 0, %entry ], [ %more, %ended ]
  %start = phi ptr [ %message, %entry ], [ %to, %ended ]
  br label %copy
copy:
  %from = phi ptr [ %text, %part ], [ %from.next, %put ]
  %to = phi ptr [ %start, %part ], [ %to.next, %put ]
  %char = load i8, ptr %from
  %over = icmp eq i8 %char, 0
  %full = icmp eq ptr %to, %last
  %stop = or i1 %over, %full
  br i1 %stop, label %ended, label %put
put:
  store i8 %char, ptr %to
  %from.next = getelementptr i8, ptr %from, i32 1
  %to.next = getelementptr i8, ptr %to, i32 1
  br label %copy
ended:
  %more = add i32 %parts, 1
  %all = icmp eq i32 %more, 4
  br i1 %all, label %done, label %part
done:
  store i8 0, ptr %to
  %code = call i32 {host.fail(module)}(ptr %kind, ptr %message)
  ret i32 -1
"""

    return module.support(
        "sterna.wrong_argument", "i32", "ptr %kind, ptr %wanted, ptr %words, ptr %end",
        MAKES_ERRORS, write,
    )


def check_arrays(module: ModuleWriter) -> str:
    """i32 (ptr args, ptr table, i32 count, ptr found): where the data of arrays begin.

    Returns 0, or -1 with an error where an argument is another thing.
    """

    def write() -> str:
        cases = {
            "next": (words.NO_ARRAY, module.string("")),
            "ndim": (words.WRONG_NDIM, "%dimensions"),
            "type": (words.WRONG_DTYPE, "%type.text"),
            "extent": (words.WRONG_SHAPE, "%extent.text"),
            "device": (words.WRONG_DEVICE, "%device.text"),
            "owner": (words.IS_READ_ONLY, module.string("")),
            "stride": (words.HAS_GAPS, module.string("")),
        }
        chosen = [
            [f"[ {module.string(kind)}, %{at} ]" for at, ((kind, _), _) in cases.items()],
            [f"[ {module.string(text)}, %{at} ]" for at, ((_, text), _) in cases.items()],
            [f"[ {end}, %{at} ]" for at, (_, end) in cases.items()],
        ]
        kinds, middles, ends = (", ".join(each) for each in chosen)
        return f"""\
entry:
  br label %next
next:
  %row = phi i32 [ 0, %entry ], [ %row.next, %good ]
  %wanted = getelementptr inbounds {_WANTED}, ptr %table, i32 %row
  %place.at = getelementptr inbounds {_WANTED}, ptr %wanted, i32 0, i32 {_PLACE}
  %place = load i32, ptr %place.at
  %any = getelementptr inbounds {ANY}, ptr %args, i32 %place
  %kind = load i32, ptr %any
  %value = getelementptr inbounds {ANY}, ptr %any, i32 0, i32 2
  %start = load ptr, ptr %value
  %object = icmp eq i32 %kind, 70
  %view = icmp eq i32 %kind, 7
  %array = or i1 %object, %view
  %dimensions.at = getelementptr inbounds {_WANTED}, ptr %wanted, i32 0, i32 {_DIMENSIONS}
  %dimensions = load ptr, ptr %dimensions.at
  %type.text.at = getelementptr inbounds {_WANTED}, ptr %wanted, i32 0, i32 {_TYPE_TEXT}
  %type.text = load ptr, ptr %type.text.at
  %device.text.at = getelementptr inbounds {_WANTED}, ptr %wanted, i32 0, i32 {_DEVICE_TEXT}
  %device.text = load ptr, ptr %device.text.at
  br i1 %array, label %ndim, label %wrong
ndim:
  %inside = getelementptr i8, ptr %start, i32 24
  %tensor = select i1 %object, ptr %inside, ptr %start
  %ndim.at = getelementptr inbounds {TENSOR}, ptr %tensor, i32 0, i32 3
  %given.ndim = load i32, ptr %ndim.at
  %wanted.ndim.at = getelementptr inbounds {_WANTED}, ptr %wanted, i32 0, i32 {_NDIM}
  %dims = load i32, ptr %wanted.ndim.at
  %same.ndim = icmp eq i32 %given.ndim, %dims
  br i1 %same.ndim, label %type, label %wrong
type:
  %type.at = getelementptr inbounds {TENSOR}, ptr %tensor, i32 0, i32 4
  %given.type = load i32, ptr %type.at
  %wanted.type.at = getelementptr inbounds {_WANTED}, ptr %wanted, i32 0, i32 {_TYPE}
  %wanted.type = load i32, ptr %wanted.type.at
  %extents.at = getelementptr inbounds {_WANTED}, ptr %wanted, i32 0, i32 {_EXTENTS}
  %extents = load ptr, ptr %extents.at
  %shape.at = getelementptr inbounds {TENSOR}, ptr %tensor, i32 0, i32 7
  %shape = load ptr, ptr %shape.at
  %same.type = icmp eq i32 %given.type, %wanted.type
  br i1 %same.type, label %extents.loop, label %wrong
extents.loop:
  %dim = phi i32 [ 0, %type ], [ %dim.next, %extent ]
  %no.more = icmp eq i32 %dim, %dims
  br i1 %no.more, label %device, label %extent
extent:
  %wanted.extent.at = getelementptr inbounds {_EXTENT}, ptr %extents, i32 %dim, i32 0
  %wanted.extent = load i64, ptr %wanted.extent.at
  %extent.text.at = getelementptr inbounds {_EXTENT}, ptr %extents, i32 %dim, i32 1
  %extent.text = load ptr, ptr %extent.text.at
  %size.at = getelementptr inbounds i64, ptr %shape, i32 %dim
  %size = load i64, ptr %size.at, align 8
  %same.size = icmp eq i64 %size, %wanted.extent
  %open = icmp eq i64 %wanted.extent, -1
  %fits = or i1 %same.size, %open
  %dim.next = add i32 %dim, 1
  br i1 %fits, label %extents.loop, label %wrong
device:
  %device.at = getelementptr inbounds {TENSOR}, ptr %tensor, i32 0, i32 1
  %where = load i32, ptr %device.at
  %wanted.device.at = getelementptr inbounds {_WANTED}, ptr %wanted, i32 0, i32 {_DEVICE}
  %wanted.device = load i32, ptr %wanted.device.at
  %same.device = icmp eq i32 %where, %wanted.device
  br i1 %same.device, label %use, label %wrong
use:
  %is.written.at = getelementptr inbounds {_WANTED}, ptr %wanted, i32 0, i32 {_IS_WRITTEN}
  %is.written = load i32, ptr %is.written.at
  %writes = icmp ne i32 %is.written, 0
  %asks = and i1 %writes, %object
  br i1 %asks, label %owner, label %compact
owner:
  %mark.at = getelementptr i8, ptr %start, i32 12
  %mark = load i32, ptr %mark.at
  %read.only = icmp eq i32 %mark, {words.READ_ONLY_MARK}
  br i1 %read.only, label %wrong, label %compact
compact:
  %strides.at = getelementptr inbounds {TENSOR}, ptr %tensor, i32 0, i32 8
  %strides = load ptr, ptr %strides.at
  %none = icmp eq ptr %strides, null
  br i1 %none, label %good, label %strides.loop
strides.loop:
  %left = phi i32 [ %dims, %compact ], [ %at, %stride ]
  %step = phi i64 [ 1, %compact ], [ %step.next, %stride ]
  %all = icmp eq i32 %left, 0
  br i1 %all, label %good, label %stride
stride:
  %at = sub i32 %left, 1
  %length.at = getelementptr inbounds i64, ptr %shape, i32 %at
  %length = load i64, ptr %length.at, align 8
  %stride.at = getelementptr inbounds i64, ptr %strides, i32 %at
  %given.stride = load i64, ptr %stride.at, align 8
  %step.next = mul i64 %step, %length
  %single = icmp eq i64 %length, 1
  %regular = icmp eq i64 %given.stride, %step
  %whole = or i1 %single, %regular
  br i1 %whole, label %strides.loop, label %wrong
good:
  %data = load ptr, ptr %tensor
  %offset.at = getelementptr inbounds {TENSOR}, ptr %tensor, i32 0, i32 9
  %offset = load i64, ptr %offset.at
  %begin = getelementptr i8, ptr %data, i64 %offset
  %slot = getelementptr inbounds ptr, ptr %found, i32 %row
  store ptr %begin, ptr %slot
  %row.next = add i32 %row, 1
  %done = icmp eq i32 %row.next, %count
  br i1 %done, label %right, label %next
right:
  ret i32 0
wrong:
  %error = phi ptr {kinds}
  %words = phi ptr {middles}
  %end = phi ptr {ends}
  %code = call i32 {wrong_argument(module)}(ptr %error, ptr %wanted, ptr %words, ptr %end)
  ret i32 -1
"""

    return module.support(
        "sterna.check_arrays", "i32", "ptr %args, ptr %table, i32 %count, ptr %found",
        f"noinline {ATTRIBUTES}", write,
    )
