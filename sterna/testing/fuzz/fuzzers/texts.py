"""Reads broken texts of Relay: a graph, or a ValueError that says what is wrong."""

import re

from sterna import relay
from sterna.ir.module import IRModule
from sterna.relay.transform import InferType
from sterna.testing.fuzz.fuzzer import Fuzzer
from sterna.testing.fuzz.mutate import mutate
from sterna.testing.fuzz.tape import Tape

TEXTS = (
    "def @main(%x: Tensor[(1, 3, 8, 8), float32], %w: Tensor[(4, 3, 3, 3), float32]) -> "
    "Tensor[(1, 4, 6, 6), float32] {\n  %0 = nn.conv2d(%x, %w, padding=[0, 0, 0, 0], channels=4, "
    "kernel_size=[3, 3]);\n  nn.relu(%0)\n}\n",
    "def @main(%x: Tensor[(?, 4), float32], %c: bool) {\n  let %y = if (%c) { add(%x, 1f) } else "
    "{ %x };\n  (%y, split(%y, indices_or_sections=2, axis=1).0)\n}\n",
    "type List[A] { Cons(A, List[A]), Nil, }\ndef @sum(%l: List[int32]) -> int32 {\n  match (%l) "
    "{ Cons(%h, %t) => add(%h, @sum(%t)), Nil => 0, }\n}\n"
    "def @main(%n: int32) { @sum(Cons(%n, Cons(3, Nil))) }\n",
    "fn (%x: Tensor[(2, 3), float32]) { exp(add(nn.relu(%x), multiply(2f, 3f))) }",
)
WORDS = (
    "(", ")", "{", "}", "[", "]", "%x", "%0", "@main", "->", "=", "=>", ";", ",", "?", "\0", '"',
    "0", "-1", "300i8", "9" * 20, "1e400", "1.5i32", ".1", "meta[relay.Constant][0]", "let", "fn",
    "def", "type", "match", "if", "ref", "#[", "float33", "int32", "Tensor[(1,), float32]",
    "nn.conv2d", "reshape", "newshape=[1099511627776, 1099511627776]", "axis=9", 'axis="x"', "é",
    "//", "/*", "(" * 12,
)
NUMBERS = ("0", "1", "2", "5", "7", "-1", "?", "64", "65536", "2147483648", "1099511627776",
           "9" * 20)
DEEP = 20_000


class Texts(Fuzzer):
    """Texts with words and bytes changed, and such as are nested far too deeply."""

    name = "texts"
    about = "broken texts of Relay"
    seconds = 20.0
    memory = 3 << 30

    def check(self, tape: Tape) -> str:
        """Read a broken text, show it, and infer its types."""
        try:
            made = relay.fromtext(self._draw(tape))
            str(made)
            InferType()(made if isinstance(made, IRModule) else IRModule.from_expr(made))
        except ValueError:
            return "refused"
        return "read"

    def _draw(self, tape: Tape) -> str:
        text = tape.choice(TEXTS)
        if tape.random() < 0.01:
            return text.replace("%x", "(" * DEEP + "%x", 1)
        if tape.random() < 0.25:
            return mutate(text.encode(), tape).decode("utf-8", "replace")
        if tape.random() < 0.4:
            first, last = tape.choice([found.span() for found in re.finditer("[0-9]+", text)])
            return text[:first] + tape.choice(NUMBERS) + text[last:]
        for _ in range(tape.choice((1, 1, 1, 2))):
            place, length = tape.randrange(len(text) + 1), tape.choice((0, 0, 0, 1, 2, 5))
            text = text[:place] + tape.choice(WORDS) + text[place + length :]
        return text

    def program(self, values: list[int], error: str) -> str:
        """The text itself."""
        return (
            f"from sterna import relay\n\nrelay.fromtext({self._draw(Tape(values=values))!r})\n"
        )


FUZZER = Texts()
