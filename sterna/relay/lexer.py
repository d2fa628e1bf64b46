"""Tokens of graphs as text."""

import re
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
      | (?P<header>\#\[version\s*=\s*"[^"]*"\])
      | (?P<metadata>\#\[metadata\])
      | (?P<text>"(?:[^"\\]|\\.)*")
      | (?P<number>-?(?:\d+\.\d*(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+|\d+)
                   (?:bf16|f16|f32|f64|f|i8|i16|i32|i64|u8|u16|u32|u64)?)
      | (?P<local>%\w+)
      | (?P<global>@\w+)
      | (?P<arrow>->|=>)
      | (?P<infinity>-inf\b)
      | (?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)
      | (?P<infix>==|!=|<=|>=|[-+*/])
      | (?P<sign>[()\[\]{},;:=.?<>])
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Token:
    """A word of the text."""

    kind: str
    text: str
    at: int


def tokens_of(text: str) -> tuple[list[Token], str]:
    """The words, and what stands behind #[metadata]."""
    found: list[Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(f"{place(text, at)}: {text[at : at + 20]!r} is no part of a graph")
        kind = match.lastgroup or ""
        if kind == "metadata":
            return [*found, Token("end", "", at)], text[match.end() :]
        if kind not in ("space", "header"):
            found.append(Token(kind, match[0], at))
        at = match.end()
    return [*found, Token("end", "", at)], ""


def place(text: str, at: int) -> str:
    """line 3, column 7"""
    line = text.count("\n", 0, at) + 1
    return f"line {line}, column {at - text.rfind(chr(10), 0, at)}"
