"""Words, types and attributes of graphs as text."""

import json
import re
from typing import Any, NoReturn

from sterna.ir.types import Any as AnyDim
from sterna.ir.types import (
    FuncType,
    GlobalTypeVar,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeVar,
    scalar_type,
)
from sterna.relay.lexer import Token, place, tokens_of
from sterna.support.dtype import DataType

_NUMBER = re.compile(r"(.*?)(bf16|f16|f32|f64|f|i8|i16|i32|i64|u8|u16|u32|u64)?")


class TypeParser:
    """Reads one word after the other; those that expressions are made of are left to others."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens, self.metadata = tokens_of(text)
        self.at = 0
        self.data_types: set[str] = set()
        self.type_vars: set[str] = set()

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
        if self.take("ref"):
            (value,) = self.types()
            return RefType(value)
        if self.next.kind == "name":
            return self.named_type()
        return TupleType(self.types())

    def named_type(self) -> Type:
        """A type of the module, one that a function is for all of, or that of a number."""
        name = self.next.text
        if name in self.type_vars:
            self.at += 1
            return TypeVar(name)
        if name not in self.data_types:
            return scalar_type(self.element_type())
        self.at += 1
        return TypeCall(GlobalTypeVar(name), self.types("[", "]") if self.next.text == "[" else ())

    def type_parameters(self) -> tuple[TypeVar, ...]:
        """[A, B], if there are any; from here on they are known."""
        found: list[TypeVar] = []
        if self.take("["):
            while not self.take("]"):
                found.append(TypeVar(self.word("name", "a name of a type")))
                if self.next.text != "]":
                    self.need(",")
        self.type_vars |= {var.name_hint for var in found}
        return tuple(found)

    def element_type(self) -> DataType:
        token = self.next
        try:
            return DataType(self.word("name", "an element type"))
        except ValueError as error:
            raise ValueError(f"{place(self.text, token.at)}: {error}") from None

    def types(self, first: str = "(", last: str = ")") -> tuple[Type, ...]:
        self.need(first)
        found: list[Type] = []
        while not self.take(last):
            found.append(self.type())
            if self.next.text != last:
                self.need(",")
        return tuple(found)

    def value(self) -> Any:
        """An attribute's value."""
        token = self.next
        self.at += 1
        if token.kind == "text":
            return json.loads(token.text)
        if token.kind == "number":
            digits, suffix = split_number(token.text)
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


def split_number(text: str) -> tuple[str, str]:
    """The digits, and what says their type."""
    match = _NUMBER.fullmatch(text)
    assert match is not None
    return match[1], match[2] or ""
