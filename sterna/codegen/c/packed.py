"""Calls of packed functions by name, as C."""

from sterna.codegen.c.calls import CallWriter
from sterna.codegen.c.expr import ATOM, OTHER, UNARY, Text
from sterna.codegen.c.types import (
    MAX_TEXT,
    CodegenError,
    int_literal,
    int_range,
    string_literal,
    value_type,
)
from sterna.codegen.symbols import LIBRARY_CONTEXT
from sterna.ir.expr import Call, Expr, StringImm
from sterna.support.dtype import DataType
from sterna.tir.external import explicit_view

# The type indices of the calling convention.
_NONE, _INT, _BOOL, _FLOAT, _POINTER, _TENSOR_VIEW, _C_STRING = 0, 1, 2, 3, 4, 7, 8
_CPU = 1
_INT64 = DataType("int64")


class PackedWriter(CallWriter):
    """Writes calls by name: statements that lay out arguments and call, then the result."""

    caller: str
    slots: dict[str, None]
    """Variables of the file that a loader fills."""

    def call_packed(self, expr: Call, is_used: bool) -> Text:
        """Calls; the result as the call's type, if it is used."""
        name = expr.args[0]
        if not isinstance(name, StringImm):
            raise CodegenError(f"{self.caller}: call_packed takes the function's name first")
        self.helpers.fixed("call")
        given = [self._argument(arg) for arg in expr.args[1:]]
        context = self.context()
        self.slots |= dict.fromkeys((LIBRARY_CONTEXT, context))
        site, args, result = (self.names.make(base) for base in ("site", "args", "result"))
        who = f"{string_literal(self.caller)}, {string_literal(name.value)}"
        self.line(f"static struct sterna_call_site {site} = {{{who}, &{context}, 0, 0}};")
        if given:
            self.line(f"sterna_any {args}[{len(given)}] = {{{', '.join(given)}}};")
        self.line(f"sterna_any {result};")
        wanted = _wanted(expr.dtype) if is_used else _NONE
        call = f"sterna_call(&{site}, {args if given else '0'}, {len(given)}, {wanted}, &{result})"
        self._fail_if(f"{call} != 0")
        return self._result(expr, name.value, f"{result}.value") if is_used else ("0", ATOM)

    def context(self) -> str:
        """The variable of the file that points to the function's module."""
        raise NotImplementedError

    def _fail_if(self, condition: str, value: str = "-1") -> None:
        self.line(f"if ({condition}) {{")
        self.depth += 1
        self.fail(value)
        self.depth -= 1
        self.line("}")

    def _argument(self, arg: Expr) -> str:
        """An argument as the initializer of a sterna_any."""
        if isinstance(arg, StringImm):
            if len(arg.value.encode()) > MAX_TEXT:
                raise CodegenError(f"{self.caller}: a text of C holds {MAX_TEXT} bytes, not more")
            kind, payload = _C_STRING, f".v_ptr = (void *){string_literal(arg.value)}"
        elif isinstance(arg, Call) and arg.op == "view_of":
            kind, payload = _TENSOR_VIEW, f".v_ptr = &{self._view(arg)}"
        elif arg.dtype.kind == "handle":
            kind, payload = _POINTER, f".v_ptr = (void *){self.text(arg, UNARY)}"
        elif arg.dtype.is_float:
            kind, payload = _FLOAT, f".v_float64 = (double){self.text(arg, UNARY)}"
        else:
            kind, payload = _INT, f".v_int64 = (int64_t){self.text(arg, UNARY)}"
            if arg.dtype.is_bool:
                kind, payload = _BOOL, f".v_int64 = {self.text(arg, OTHER)}"
        return f"{{{kind}, 0, {{{payload}}}}}"

    def _view(self, view: Call) -> str:
        """The name of a DLTensor on the stack."""
        self.helpers.fixed("tensor")
        first, *lists = explicit_view(view)
        names = []
        for base, numbers in zip(("shape", "strides"), lists, strict=True):
            listed = ", ".join(self.text(number, OTHER, index=True) for number in numbers)
            names.append(self.names.make(base))
            self.line(f"int64_t {names[-1]}[{max(len(numbers), 1)}] = {{{listed or '0'}}};")
        data = f"(void *)&{self.element(first.buffer, first.indices, '')}"
        dtype = first.buffer.dtype
        tensor = self.names.make("tensor")
        about = f"{_CPU}, 0, {len(lists[0])}, {dtype.type_code}, {dtype.bits}, 1"
        self.line(f"sterna_tensor {tensor} = {{{data}, {about}, {', '.join(names)}, 0}};")
        return tensor

    def _result(self, expr: Call, name: str, value: str) -> Text:
        dtype = expr.dtype
        if dtype.kind == "handle":
            return f"{value}.v_ptr", ATOM
        if dtype.is_float:
            return self.rounded(f"({value_type(dtype)}){value}.v_float64", dtype, UNARY)
        if dtype.is_bool:
            return f"{value}.v_int64 != 0", OTHER
        if dtype != _INT64:
            self._check_range(dtype, name, f"{value}.v_int64")
        return f"({value_type(dtype)}){value}.v_int64", UNARY

    def _check_range(self, dtype: DataType, name: str, value: str) -> None:
        low, high = int_range(dtype)
        test = f"{value} < {int_literal(low, _INT64)}"
        if dtype.bits < 64:
            test += f" || {value} > {int_literal(high, _INT64)}"
        message = (
            f"{self.caller} calls '{name}', which returned a number that does not fit in {dtype}"
        )
        texts = f"{string_literal('OverflowError')}, {string_literal(message)}"
        self._fail_if(test, f"sterna_fail({texts})")


def _wanted(dtype: DataType) -> int:
    if dtype.kind == "handle":
        return _POINTER
    return _FLOAT if dtype.is_float else _INT
