"""Loads broken copies of compiled files: what was changed is refused, nothing ends the process."""

import base64
import random
from pathlib import Path

from sterna import te
from sterna.driver import build
from sterna.runtime import load_module
from sterna.support import seal
from sterna.testing.fuzz.fuzzer import Fuzzer
from sterna.testing.fuzz.mutate import mutate, mutate_head
from sterna.testing.fuzz.tape import Tape

FORMS = (".so", ".o", ".tar", ".a")
ELF_HEADER = 64


class Loaders(Fuzzer):
    """Files as they are exported, and the same without their seals."""

    name = "loaders"
    about = "compiled files with bytes changed"
    seconds = 20.0

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}

    def prepare(self, folder: Path, corpus: Path | None) -> None:
        """Export a function in every form."""
        self._folder = folder
        a = te.placeholder((64,), name="a")
        b = te.compute((64,), lambda i: te.exp(a[i]), name="b")
        module = build(te.create_schedule(b.op), [a, b], "llvm", name="powers")
        for form in FORMS:
            path = folder / f"whole{form}"
            module.export_library(path)
            self._files[form] = path.read_bytes()

    def check(self, tape: Tape) -> str:
        """Load a broken file."""
        form, data, is_same = self._draw(tape)
        path = self._folder / f"broken{form}"
        path.write_bytes(data)
        try:
            load_module(path)
        except ValueError as error:
            assert str(path) in str(error), "the error does not name the file"
            return "refused"
        assert is_same or seal.is_sealed(path) is False, "a file that was changed is loaded"
        return "loaded"

    def _draw(self, tape: random.Random) -> tuple[str, bytes, bool]:
        """The form, the bytes, and whether all that is loaded is as it was."""
        form = tape.choice(FORMS)
        whole = self._files[form]
        if form in (".so", ".o") and tape.random() < 0.3:  # as of another compiler
            return form, mutate_head(whole[: -seal.SIZE], tape, ELF_HEADER), False
        at_head = tape.random() < 0.4
        made = mutate_head(whole, tape) if at_head else mutate(whole, tape, (1, 1, 2, 3))
        return form, made, made.startswith(whole[: -seal.SIZE]) or form in (".a", ".tar")

    def program(self, values: list[int], error: str) -> str:
        """The file itself."""
        form, made, _ = self._draw(Tape(values=values))
        data = base64.b64encode(made).decode()
        return (
            "import base64, pathlib\nfrom sterna.runtime import load_module\n\n"
            f"pathlib.Path('broken{form}').write_bytes(base64.b64decode({data!r}))\n"
            f"load_module('broken{form}')\n"
        )


FUZZER = Loaders()
