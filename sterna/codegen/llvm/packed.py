"""The packed calling convention: what is laid on the stack, and who finds functions by name."""

from sterna.codegen.llvm import convert, host, small_floats
from sterna.codegen.llvm.calls import CallEmitter
from sterna.codegen.llvm.emitter import ModuleWriter
from sterna.codegen.llvm.layouts import ANY, CALL_SITE, TENSOR
from sterna.codegen.llvm.memory import flat_index
from sterna.codegen.llvm.types import value_type
from sterna.codegen.symbols import LIBRARY_CONTEXT
from sterna.ir.expr import Call, Expr, StringImm
from sterna.support.dtype import DataType
from sterna.tir.external import explicit_view

# The type indices of the calling convention.
_NONE, _INT, _BOOL, _FLOAT, _POINTER, _TENSOR_VIEW, _C_STRING = 0, 1, 2, 3, 4, 7, 8
_CPU = 1
_INT64 = DataType("int64")


class PackedEmitter(CallEmitter):
    """Calls of packed functions; the statements around them say what happens when they fail."""

    name: str
    symbols: dict[str, str]

    def call_packed(self, expr: Call, is_used: bool) -> str:
        """Calls; the result as the call's type, if it is used."""
        name = expr.args[0]
        if not isinstance(name, StringImm):
            raise ValueError(f"{self.name}: call_packed takes the function's name first")
        given = [self._argument(arg) for arg in expr.args[1:]]
        writer = self.writer
        args = writer.alloca(f"[{max(len(given), 1)} x {ANY}]", 8)
        for place, (kind, typed) in enumerate(given):
            # On machines with short pointers the rest of the eight bytes is zero.
            for member, operand in ((0, f"i32 {kind}"), (1, "i32 0"), (2, "i64 0"), (2, typed)):
                address = writer.value(
                    f"getelementptr inbounds {ANY}, ptr {args}, i32 {place}, i32 {member}"
                )
                writer.emit(f"store {operand}, ptr {address}")
        result = writer.alloca(ANY, 8)
        wanted = _wanted(expr.dtype) if is_used else _NONE
        context = self.symbols.get(LIBRARY_CONTEXT, LIBRARY_CONTEXT)
        site = _call_site(self.module, self.name, name.value, context)
        code = writer.value(
            f"call i32 {host.call(self.module)}(ptr {site}, ptr {args}, i32 {len(given)}, "
            f"i32 {wanted}, ptr {result})"
        )
        self.unless(writer.value(f"icmp eq i32 {code}, 0"))
        return self._result(expr, name.value, result) if is_used else convert.zero(expr.dtype)

    def unless(self, holds: str, kind: str = "", message: str = "") -> None:
        """Ends the function where a condition does not hold, with an error if there is none yet."""
        raise NotImplementedError

    # ---- arguments ----

    def _argument(self, arg: Expr) -> tuple[int, str]:
        """The tag and the payload of an argument."""
        if isinstance(arg, StringImm):
            return _C_STRING, f"ptr {self.expr(arg)}"
        if isinstance(arg, Call) and arg.op == "view_of":
            return _TENSOR_VIEW, f"ptr {self._view(arg)}"
        dtype = arg.dtype
        if dtype.kind == "handle":
            return _POINTER, f"ptr {self.expr(arg)}"
        if dtype.is_float:
            return _FLOAT, f"double {self._converted(arg, small_floats.FLOAT64)}"
        return _BOOL if dtype.is_bool else _INT, f"i64 {self._converted(arg, _INT64)}"

    def _converted(self, arg: Expr, target: DataType) -> str:
        return convert.cast(self.writer, arg.dtype, target, self.expr(arg))

    def _view(self, view: Call) -> str:
        """The address of a DLTensor in the function's frame."""
        first, shape, strides = explicit_view(view)
        writer, ndim = self.writer, len(shape)
        lists = []
        for numbers in (shape, strides):
            values = [self._converted(number, _INT64) for number in numbers]
            lists.append(writer.alloca(f"[{max(ndim, 1)} x i64]", 8))
            for place, value in enumerate(values):
                address = writer.value(f"getelementptr inbounds i64, ptr {lists[-1]}, i32 {place}")
                writer.emit(f"store i64 {value}, ptr {address}")
        dtype = first.buffer.dtype
        data = self.address(first.buffer, flat_index(first.buffer, first.indices))
        members = [
            f"ptr {data}", f"i32 {_CPU}", "i32 0", f"i32 {ndim}", f"i8 {dtype.type_code}",
            f"i8 {dtype.bits}", "i16 1", f"ptr {lists[0]}", f"ptr {lists[1]}", "i64 0",
        ]
        tensor = writer.alloca(TENSOR, 8)
        for place, operand in enumerate(members):
            address = writer.value(
                f"getelementptr inbounds {TENSOR}, ptr {tensor}, i32 0, i32 {place}"
            )
            writer.emit(f"store {operand}, ptr {address}")
        return tensor

    # ---- the result ----

    def _result(self, expr: Call, name: str, result: str) -> str:
        writer, dtype = self.writer, expr.dtype
        wide = {_FLOAT: small_floats.FLOAT64, _POINTER: dtype}.get(_wanted(dtype), _INT64)
        place = writer.value(f"getelementptr inbounds {ANY}, ptr {result}, i32 0, i32 2")
        value = writer.value(f"load {value_type(wide)}, ptr {place}")
        narrow = convert.cast(writer, wide, dtype, value)
        if dtype.is_integer and dtype != _INT64:
            # A number of 64 bits fits an unsigned type of as many unless it is negative.
            again = convert.cast(writer, dtype, _INT64, narrow)
            test = f"sge i64 {value}, 0" if dtype.bits == 64 else f"eq i64 {value}, {again}"
            message = (
                f"{self.name} calls '{name}', which returned a number that does not fit in {dtype}"
            )
            self.unless(writer.value(f"icmp {test}"), "OverflowError", message)
        return narrow


def _wanted(dtype: DataType) -> int:
    if dtype.kind == "handle":
        return _POINTER
    return _FLOAT if dtype.is_float else _INT


def _call_site(module: ModuleWriter, caller: str, name: str, context: str) -> str:
    """A sterna_call_site, and the variable that it finds its module through."""
    module.loader_variable(context)
    texts = [module.string(caller), module.string(name)]
    site = f"@site.{len(module.globals)}"
    values = f"ptr {texts[0]}, ptr {texts[1]}, ptr @{context}, i64 0, ptr null"
    module.globals.append(f"{site} = internal global {CALL_SITE} {{ {values} }}, align 8")
    return site
