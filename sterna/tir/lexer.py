"""Words of the text form of loops, line by line."""

import json
import re
from dataclasses import dataclass
from typing import Any


class ParseError(ValueError):
    """Text that is no function; the message has the line, the column and what was expected."""


@dataclass(frozen=True, slots=True)
class Token:
    """A word and where it stands."""

    kind: str
    """name, number, string, symbol, or end."""
    text: str
    column: int


_TOKEN = re.compile(
    r"""(?P<space>[ \t]+)
    | (?P<name>[^\W\d]\w*(?:\.\w+)*)
    | (?P<number>\d+(?:\.\d+)?(?:e[+-]?\d+)?)
    | (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<symbol>//|<<|>>|<=|>=|==|!=|[-+*/%<>=&|^~()\[\]{},:@])
    """,
    re.VERBOSE,
)


class Line:
    """One line's words, read one after the other."""

    def __init__(self, number: int, text: str) -> None:
        self.number = number
        self.text = text
        stripped = text.lstrip(" ")
        self.indent = len(text) - len(stripped)
        self.note = ""
        self.note_column = 0
        self.tokens = self._split(self.indent)
        self.at = 0

    def _split(self, start: int) -> list[Token]:
        tokens, at = [], start
        while at < len(self.text):
            if self.text[at] == "#":
                self.note, self.note_column = self.text[at + 1 :].strip(), at
                break
            found = _TOKEN.match(self.text, at)
            if found is None:
                raise self.error(f"the character {self.text[at]!r} means nothing here", at)
            kind = str(found.lastgroup)
            if kind != "space":
                tokens.append(Token(kind, found[0], at))
            at = found.end()
        tokens.append(Token("end", "", len(self.text)))
        return tokens

    def error(self, reason: str, column: int | None = None) -> ParseError:
        """An error at a column, or at the next word."""
        at = self.next.column if column is None else column
        place = f"line {self.number}, column {at + 1}: {reason}"
        return ParseError(f"{place}\n  {self.text}\n  {' ' * at}^")

    def expected(self, what: str) -> ParseError:
        """An error about the next word."""
        found = f"'{self.next.text}'" if self.next.text else "the end of the line"
        return self.error(f"expected {what}, found {found}")

    @property
    def next(self) -> Token:
        """The word that comes next."""
        return self.tokens[self.at]

    def peek(self, text: str, ahead: int = 0) -> bool:
        """Whether a certain word (and no string of that text) comes next."""
        at = min(self.at + ahead, len(self.tokens) - 1)
        return self.tokens[at].text == text and self.tokens[at].kind != "string"

    def take(self, text: str) -> bool:
        """Read a word if it comes next."""
        if self.peek(text):
            self.at += 1
            return True
        return False

    def need(self, text: str) -> None:
        """Read a word that must come next."""
        if not self.take(text):
            raise self.expected(f"'{text}'")

    def kind(self, kind: str, what: str) -> str:
        """Read a word of a kind that must come next."""
        if self.next.kind != kind:
            raise self.expected(what)
        self.at += 1
        return self.tokens[self.at - 1].text

    def string(self) -> str:
        """Read text in quotes."""
        column = self.next.column
        quoted = self.kind("string", "text in quotes")
        try:
            value: Any = json.loads(quoted)
        except ValueError as error:
            raise self.error(f"broken text in quotes: {error}", column) from None
        return str(value)

    def integer(self, what: str = "a whole number") -> int:
        """Read a whole number."""
        sign = -1 if self.take("-") else 1
        if not self.next.text.isdecimal():
            raise self.expected(what)
        return sign * int(self.kind("number", what))

    def end(self) -> None:
        """Nothing more may come."""
        if self.next.kind != "end":
            raise self.expected("the end of the line")
