"""Graphs read from text; text.py shows the form."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from sterna.ir.module import IRModule
from sterna.ir.node import Node
from sterna.ir.serialize import load_json
from sterna.ir.types import GlobalTypeVar
from sterna.relay.adt import (
    Clause,
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    TypeData,
)
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
from sterna.relay.lexer import Token, place
from sterna.relay.op import Op, find
from sterna.relay.quantized import int_range
from sterna.relay.steps import Step
from sterna.relay.text import REFERENCES, SUFFIXES
from sterna.relay.type_parser import TypeParser, split_number
from sterna.support.dtype import DataType

_REFERENCES: dict[str, type[Step]] = {name: kind for kind, name in REFERENCES.items()}
_DTYPES = {suffix: dtype for dtype, suffix in SUFFIXES.items()} | {"f32": "float32", "i32": "int32"}
# What shows whether a number is too large for a type; float32 for all others.
_WIDEST: dict[str, Any] = {"float16": np.float16, "float64": np.float64}
# How strongly a sign binds, and the operator that it stands for.
_INFIX = {
    "*": (3, "multiply"), "/": (3, "divide"), "+": (2, "add"), "-": (2, "subtract"),
    "<": (1, "less"), ">": (1, "greater"), "<=": (1, "less_equal"), ">=": (1, "greater_equal"),
    "==": (0, "equal"), "!=": (0, "not_equal"),
}


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


class _Parser(TypeParser):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.constants = self._constants(self.metadata)
        self.scopes: list[dict[str, RelayExpr]] = [{}]
        self.globals: dict[str, GlobalVar] = {}
        self.constructors: dict[str, Constructor] = {}

    def _constants(self, meta: str) -> tuple[Any, ...]:
        if not meta.strip():
            return ()
        found = load_json(meta)
        if not isinstance(found, tuple) or not all(isinstance(c, Constant) for c in found):
            raise ValueError("the section #[metadata] holds no list of constants")
        return found

    # ---- modules and functions ----

    def whole(self) -> Any:
        is_module = self.next.text in ("def", "type")
        made = self.module() if is_module else self.scope_body()
        if self.next.kind != "end":
            self.fail("the end")
        return made

    def module(self) -> IRModule:
        functions: dict[str, Node] = dict(self.data())
        while self.next.text in ("def", "type"):
            if self.take("type"):
                self.skip_data()
                continue
            self.need("def")
            name = self.word("global", "a function's name (@name)")[1:]
            if name in functions:
                raise ValueError(f"the function @{name} is defined twice")
            functions[name] = self.function()
        return IRModule(functions)

    def data(self) -> Iterator[tuple[str, TypeData]]:
        """The algebraic data types of the text, wherever they stand: functions may come first."""
        begin = self.at
        places = [k for k, token in enumerate(self.tokens) if token.text == "type"
                  and token.kind == "name" and self.tokens[k + 1].kind == "name"]
        self.data_types = {self.tokens[k + 1].text for k in places}
        for self.at in places:
            self.need("type")
            header = GlobalTypeVar(self.word("name", "a name"))
            params = self.type_parameters()
            self.need("{")
            made = []
            while not self.take("}"):
                name = self.word("name", "a constructor")
                fields = self.types() if self.next.text == "(" else ()
                made.append(Constructor(name, fields, header))
                if self.next.text != "}":
                    self.need(",")
            self.type_vars -= {var.name_hint for var in params}
            self.constructors |= {each.name_hint: each for each in made}
            yield header.name_hint, TypeData(header, params, made)
        self.at = begin

    def skip_data(self) -> None:
        self.word("name", "a name")
        while not self.take("}"):
            if self.next.kind == "end":
                self.fail("'}'")
            self.at += 1

    def function(self) -> Function:
        """[types](params, attrs) -> type { body }"""
        self.scopes.append({})
        outer = set(self.type_vars)
        type_params = self.type_parameters()
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
        self.type_vars = outer
        return Function(tuple(params), body, result, type_params, attrs)

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
            return self.number(token)
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
        if token.text == "match":
            return self.match()
        if token.text in _REFERENCES and self.tokens[self.at + 1].text == "(":
            return self.reference()
        if token.text in self.constructors and token.kind == "name":
            self.at += 1
            made = self.constructors[token.text]
            return made if made.inputs or self.next.text == "(" else made()
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

    def match(self) -> RelayExpr:
        """match (value) { pattern => value, ... }; match? where a value may look like none"""
        self.need("match")
        complete = not self.take("?")
        self.need("(")
        data = self.expression()
        self.need(")")
        self.need("{")
        clauses = []
        while not self.take("}"):
            self.scopes.append({})
            pattern = self.pattern()
            self.need("=>")
            clauses.append(Clause(pattern, self.expression()))
            self.scopes.pop()
            if self.next.text != "}":
                self.need(",")
        return Match(data, tuple(clauses), complete)

    def pattern(self) -> Pattern:
        if self.next.kind == "local":
            return PatternVar(self.parameter())
        if self.take("_"):
            return PatternWildcard()
        if self.next.text == "(":
            return PatternTuple(self.patterns())
        token = self.next
        name = self.word("name", "a pattern")
        if name not in self.constructors:
            raise ValueError(f"{place(self.text, token.at)}: there is no constructor {name}")
        fields = self.patterns() if self.next.text == "(" else ()
        return PatternConstructor(self.constructors[name], fields)

    def patterns(self) -> tuple[Pattern, ...]:
        self.need("(")
        found = []
        while not self.take(")"):
            found.append(self.pattern())
            if self.next.text != ")":
                self.need(",")
        return tuple(found)

    def reference(self) -> RelayExpr:
        token = self.next
        kind = _REFERENCES[token.text]
        self.at += 1
        self.need("(")
        parts = self.tuple_or_group(always=True)
        assert isinstance(parts, Tuple)
        try:
            return kind(*parts.fields)
        except TypeError as error:
            raise ValueError(f"{place(self.text, token.at)}: {error}") from None

    def tuple_or_group(self, always: bool = False) -> RelayExpr:
        fields: list[RelayExpr] = []
        comma = False
        while not self.take(")"):
            fields.append(self.expression())
            if self.next.text != ")":
                self.need(",")
                comma = True
        is_group = len(fields) == 1 and not comma and not always
        return fields[0] if is_group else Tuple(tuple(fields))

    def number(self, token: Token) -> RelayExpr:
        digits, suffix = split_number(token.text)
        is_whole = digits.lstrip("-").isdigit()
        dtype = DataType(_DTYPES[suffix if suffix or is_whole else "f"])
        if dtype.is_integer:
            low, high = int_range(dtype)
            fits = is_whole and low <= int(digits) <= high
        else:
            with np.errstate(over="ignore"):
                fits = bool(np.isfinite(_WIDEST.get(str(dtype), np.float32)(float(digits))))
        if not fits:
            raise ValueError(f"{place(self.text, token.at)}: {digits} is no number of {dtype}")
        return const(np.asarray(int(digits) if is_whole else float(digits)), str(dtype))
