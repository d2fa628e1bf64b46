"""Graphs read from text; text.py shows the form."""

import json
import re
from typing import Any, NoReturn

import numpy as np

from sterna.ir.module import IRModule
from sterna.ir.serialize import load_json
from sterna.ir.types import Any as AnyDim
from sterna.ir.types import FuncType, TensorType, TupleType, Type, scalar_type
from sterna.relay.expr import (
    Call,
    Constant,
    Function,
    GlobalVar,
    If,
    Let,
    RelayExpr,
    Tuple,
    TupleGetItem,
    Var,
    const,
)
from sterna.relay.lexer import Token, place, tokens_of
from sterna.relay.op import Op, find
from sterna.relay.text import SUFFIXES
from sterna.support.dtype import DataType

_DTYPES = {suffix: dtype for dtype, suffix in SUFFIXES.items()} | {"f32": "float32"}
# How strongly a sign binds, and the operator that it stands for.
_INFIX = {
    "*": (3, "multiply"), "/": (3, "divide"), "+": (2, "add"), "-": (2, "subtract"),
    "<": (1, "less"), ">": (1, "greater"), "<=": (1, "less_equal"), ">=": (1, "greater_equal"),
    "==": (0, "equal"), "!=": (0, "not_equal"),
}
_NUMBER = re.compile(r"(.*?)(bf16|f16|f32|f64|f|i8|i16|i32|i64|u8|u16|u32|u64)?")


def fromtext(text: str) -> Any:
    """The module or expression that a text shows."""
    if not isinstance(text, str):
        raise TypeError(f"a graph is read from text, not from {type(text).__name__}")
    parser = _Parser(text)
    try:
        return parser.whole()
    except RecursionError:
        where = place(text, parser.next.at)
        raise ValueError(
            f"{where}: the text is nested too deeply; give inner values names (%1 = ...)"
        ) from None


def parse(source: str, source_name: str = "from_string") -> IRModule:
    """The module that a text shows; an expression becomes its main."""
    made = fromtext(source)
    return made if isinstance(made, IRModule) else IRModule.from_expr(made)


def parse_expr(source: str) -> RelayExpr:
    """The expression that a text shows, free variables and all; functions have no names."""
    made = fromtext(source)
    if isinstance(made, IRModule):
        raise ValueError("the text shows a module: relay.parse reads those")
    assert isinstance(made, RelayExpr)
    return made


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens, meta = tokens_of(text)
        self.at = 0
        self.constants = self._constants(meta)
        self.scopes: list[dict[str, RelayExpr]] = [{}]
        self.globals: dict[str, GlobalVar] = {}

    def _constants(self, meta: str) -> tuple[Any, ...]:
        if not meta.strip():
            return ()
        found = load_json(meta)
        if not isinstance(found, tuple) or not all(isinstance(c, Constant) for c in found):
            raise ValueError("the section #[metadata] holds no list of constants")
        return found

    # ---- words ----

    @property
    def next(self) -> Token:
        return self.tokens[self.at]

    def fail(self, wanted: str) -> NoReturn:
        found = self.next.text or "the end"
        raise ValueError(f"{place(self.text, self.next.at)}: expected {wanted}, found {found!r}")

    def take(self, text: str) -> bool:
        """Go over a word if it is the next one."""
        if self.next.text == text and self.next.kind != "text":
            self.at += 1
            return True
        return False

    def need(self, text: str) -> None:
        if not self.take(text):
            self.fail(f"'{text}'")

    def word(self, kind: str, wanted: str) -> str:
        if self.next.kind != kind:
            self.fail(wanted)
        self.at += 1
        return self.tokens[self.at - 1].text

    def whole_number(self) -> int:
        text = self.word("number", "a whole number")
        if not text.lstrip("-").isdigit():
            self.at -= 1
            self.fail("a whole number")
        return int(text)

    # ---- modules and functions ----

    def whole(self) -> Any:
        made = self.module() if self.next.text == "def" else self.scope_body()
        if self.next.kind != "end":
            self.fail("the end")
        return made

    def module(self) -> IRModule:
        functions: dict[str, Function] = {}
        while self.take("def"):
            name = self.word("global", "a function's name (@name)")[1:]
            if name in functions:
                raise ValueError(f"the function @{name} is defined twice")
            functions[name] = self.function()
        return IRModule(functions)

    def function(self) -> Function:
        """(params, attrs) -> type { body }"""
        self.scopes.append({})
        params: list[Var] = []
        attrs: dict[str, Any] = {}
        self.need("(")
        while not self.take(")"):
            if self.next.kind == "local":
                params.append(self.parameter())
            else:
                key = self.word("name", "a parameter or an attribute")
                self.need("=")
                attrs[key] = self.value()
            if self.next.text != ")":
                self.need(",")
        result = self.type() if self.take("->") else None
        self.need("{")
        body = self.scope_body()
        self.need("}")
        self.scopes.pop()
        return Function(tuple(params), body, result, (), attrs)

    def parameter(self) -> Var:
        name = self.word("local", "a variable")[1:]
        made = Var(name, self.type() if self.take(":") else None)
        self.scopes[-1][name] = made
        return made

    # ---- scopes ----

    def scope_body(self) -> RelayExpr:
        """Lines that name expressions, variables that are bound, and the value."""
        bound: list[tuple[Var, RelayExpr]] = []
        while True:
            if self.take("free_var"):
                self.parameter()
                self.take(";")
            elif self.take("let"):
                name = self.word("local", "a variable")[1:]
                kind = self.type() if self.take(":") else None
                self.need("=")
                value = self.expression()
                var = Var(name, kind)
                if kind is None:
                    var._type = value._type
                self.scopes[-1][name] = var
                bound.append((var, value))
                self.need(";")
            elif self.next.kind == "local" and self.tokens[self.at + 1].text == "=":
                name = self.word("local", "a name")[1:]
                self.need("=")
                self.scopes[-1][name] = self.expression()
                self.need(";")
            else:
                break
        result = self.expression()
        for var, value in reversed(bound):
            result = Let(var, value, result)
        return result

    def inner_scope(self) -> RelayExpr:
        self.need("{")
        self.scopes.append({})
        made = self.scope_body()
        self.scopes.pop()
        self.need("}")
        return made

    # ---- expressions ----

    def expression(self, weakest: int = 0) -> RelayExpr:
        """Operands with signs between them, those that bind stronger first."""
        made = self.operand()
        while (sign := self.infix()) is not None and _INFIX[sign][0] >= weakest:
            self.at += 1
            strength, name = _INFIX[sign]
            made = Call(Op(name), (made, self.expression(strength + 1)))
        return made

    def infix(self) -> str | None:
        """The sign that comes next, if it stands between operands; -1 there is minus 1."""
        token = self.next
        if token.kind == "number" and token.text.startswith("-"):
            self.tokens[self.at : self.at + 1] = [
                Token("infix", "-", token.at), Token("number", token.text[1:], token.at + 1)
            ]
            return "-"
        return token.text if token.text in _INFIX else None

    def operand(self) -> RelayExpr:
        made = self.primary()
        while True:
            if self.take("."):
                made = TupleGetItem(made, self.whole_number())
            elif self.take("("):
                made = self.call(made)
            else:
                return made

    def call(self, function: RelayExpr) -> RelayExpr:
        """args and attributes up to the closing parenthesis"""
        args: list[RelayExpr] = []
        attrs: dict[str, Any] = {}
        begin = self.next
        while not self.take(")"):
            if self.next.kind == "name" and self.tokens[self.at + 1].text == "=":
                key = self.word("name", "an attribute")
                self.need("=")
                attrs[key] = self.value()
            else:
                args.append(self.expression())
            if self.next.text != ")":
                self.need(",")
        values = None
        if isinstance(function, Op):
            kind = find(function.name).attrs
            if attrs and kind is None:
                raise ValueError(f"{place(self.text, begin.at)}: {function} has no attributes")
            try:
                values = kind(**attrs) if kind is not None else None
            except TypeError as error:
                where = place(self.text, begin.at)
                raise ValueError(f"{where}: {function}: {error}") from None
        return Call(function, tuple(args), values)

    def primary(self) -> RelayExpr:
        token = self.next
        if token.kind == "local":
            self.at += 1
            return self.lookup(token)
        if token.kind == "global":
            self.at += 1
            return self.globals.setdefault(token.text, GlobalVar(token.text[1:]))
        if token.kind == "number":
            self.at += 1
            return _number(token.text)
        if token.text in ("True", "False"):
            self.at += 1
            return const(token.text == "True", "bool")
        if token.text == "meta":
            return self.meta()
        if token.text == "fn":
            self.at += 1
            return self.function()
        if token.text == "if":
            return self.choice()
        if token.text == "{":
            return self.inner_scope()
        if self.take("("):
            return self.tuple_or_group()
        if token.kind == "name":
            self.at += 1
            return Op(token.text)
        self.fail("an expression")

    def lookup(self, token: Token) -> RelayExpr:
        for scope in reversed(self.scopes):
            if token.text[1:] in scope:
                return scope[token.text[1:]]
        raise ValueError(f"{place(self.text, token.at)}: {token.text} is not defined")

    def meta(self) -> RelayExpr:
        """meta[relay.Constant][0]"""
        self.need("meta")
        self.need("[")
        self.need("relay.Constant")
        self.need("]")
        self.need("[")
        number = self.whole_number()
        self.need("]")
        if not 0 <= number < len(self.constants):
            raise ValueError(
                f"constant {number} is missing: the section #[metadata] holds "
                f"{len(self.constants)}; write the text with astext()"
            )
        made: RelayExpr = self.constants[number]
        return made

    def choice(self) -> RelayExpr:
        self.need("if")
        self.need("(")
        condition = self.expression()
        self.need(")")
        first = self.inner_scope()
        self.need("else")
        return If(condition, first, self.inner_scope())

    def tuple_or_group(self) -> RelayExpr:
        fields: list[RelayExpr] = []
        comma = False
        while not self.take(")"):
            fields.append(self.expression())
            if self.next.text != ")":
                self.need(",")
                comma = True
        return fields[0] if len(fields) == 1 and not comma else Tuple(tuple(fields))

    # ---- types and attributes ----

    def open_dim(self) -> AnyDim:
        """What follows a question mark: the name of a dimension, if it has one."""
        return AnyDim(self.word("name", "a name") if self.next.kind == "name" else None)

    def type(self) -> Type:
        if self.take("Tensor"):
            self.need("[")
            self.need("(")
            shape: list[Any] = []
            while not self.take(")"):
                shape.append(self.open_dim() if self.take("?") else self.whole_number())
                if self.next.text != ")":
                    self.need(",")
            self.need(",")
            dtype = self.element_type()
            self.need("]")
            return TensorType(tuple(shape), dtype)
        if self.take("fn"):
            args = self.types()
            self.need("->")
            return FuncType(args, self.type())
        if self.next.kind == "name":
            return scalar_type(self.element_type())
        return TupleType(self.types())

    def element_type(self) -> DataType:
        token = self.next
        try:
            return DataType(self.word("name", "an element type"))
        except ValueError as error:
            raise ValueError(f"{place(self.text, token.at)}: {error}") from None

    def types(self) -> tuple[Type, ...]:
        self.need("(")
        found: list[Type] = []
        while not self.take(")"):
            found.append(self.type())
            if self.next.text != ")":
                self.need(",")
        return tuple(found)

    def value(self) -> Any:
        """An attribute's value."""
        token = self.next
        self.at += 1
        if token.kind == "text":
            return json.loads(token.text)
        if token.kind == "number":
            digits, suffix = _split(token.text)
            whole = digits.lstrip("-").isdigit() and not suffix.startswith(("f", "bf"))
            return int(digits) if whole else float(digits)
        if token.text in ("None", "True", "False"):
            return {"None": None, "True": True, "False": False}[token.text]
        if token.text in ("inf", "-inf", "nan"):
            return float(token.text)
        if token.text == "[":
            items = []
            while not self.take("]"):
                items.append(self.value())
                if self.next.text != "]":
                    self.need(",")
            return tuple(items)
        self.at -= 1
        self.fail("a value")


def _split(text: str) -> tuple[str, str]:
    match = _NUMBER.fullmatch(text)
    assert match is not None
    return match[1], match[2] or ""


def _number(text: str) -> RelayExpr:
    digits, suffix = _split(text)
    dtype = _DTYPES[suffix] if suffix or digits.lstrip("-").isdigit() else "float32"
    number = int(digits) if digits.lstrip("-").isdigit() else float(digits)
    return const(np.asarray(number), dtype)
