"""Imports broken copies of TensorFlow Lite files: they are imported, or refused as bad input."""

import base64
import random
from pathlib import Path

from sterna.relay.frontend import from_tflite
from sterna.support.errors import OpNotImplemented
from sterna.testing.fuzz.fuzzer import Fuzzer
from sterna.testing.fuzz.mutate import mutate
from sterna.testing.fuzz.tape import Tape
from sterna.testing.fuzz.write_flatbuffer import Number, Numbers, write_flatbuffer

LARGEST = 400_000  # bytes of a file, so that many are tried
NUMBERS = (0, 1, 2, 3, 4, 8, 16, 255, 65535, 2**31 - 1, 2**31, 2**32 - 4, 2**32 - 1)


def small_model() -> bytes:
    """A convolution of bytes, a reshape of its result and a softmax."""
    scale = {2: Numbers("f", [0.5]), 3: Numbers("q", [3])}

    def tensor(name: str, shape: list[int], kind: int, buffer: int = 0) -> dict[int, object]:
        return {0: Numbers("i", shape), 1: Number("b", kind), 2: Number("I", buffer), 3: name,
                4: scale}

    int8, int32 = 9, 2
    tensors = [
        tensor("image", [1, 4, 4, 2], int8), tensor("weight", [3, 2, 2, 2], int8, 1),
        tensor("bias", [3], int32, 2), tensor("made", [1, 4, 4, 3], int8),
        tensor("shape", [2], int32, 3), tensor("flat", [1, 48], int8),
        tensor("result", [1, 48], int8),
    ]
    one, same = Number("i", 1), Number("b", 0)
    operators = [
        {0: Number("I", 0), 1: Numbers("i", [0, 1, 2]), 2: Numbers("i", [3]), 3: Number("B", 1),
         4: {0: same, 1: one, 2: one, 3: Number("b", 1)}},
        {0: Number("I", 1), 1: Numbers("i", [3, 4]), 2: Numbers("i", [5])},
        {0: Number("I", 2), 1: Numbers("i", [5]), 2: Numbers("i", [6]), 3: Number("B", 9),
         4: {0: Number("f", 1.0)}},
    ]
    graph = {0: tensors, 1: Numbers("i", [0]), 2: Numbers("i", [6]), 3: operators, 4: "main"}
    codes = [{0: Number("b", code), 3: Number("i", code)} for code in (3, 22, 25)]
    buffers = [{}, {0: Numbers("B", range(24))}, {0: Numbers("B", bytes(12))},
               {0: Numbers("B", b"\1\0\0\0\x30\0\0\0")}]
    root = {0: Number("I", 3), 1: codes, 2: [graph], 3: "small", 4: buffers}
    return write_flatbuffer(root, b"TFL3")  # type: ignore[arg-type]


def broken(data: bytes, rng: random.Random) -> bytes:
    """A copy of a file with something wrong: bytes, or numbers at places where numbers lie."""
    if rng.random() < 0.3:
        return mutate(data, rng)
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        place = rng.randrange(8, max(9, len(made) - 4)) & ~3
        old = int.from_bytes(made[place : place + 4], "little")
        number = rng.choice((*NUMBERS, old + 1, old - 1, old + 4, old - 4, rng.randrange(64)))
        made[place : place + 4] = (number % (1 << 32)).to_bytes(4, "little")
    return bytes(made)


class TFLiteFiles(Fuzzer):
    """Broken copies of files are imported or refused, and nothing else happens."""

    name = "tflite_files"
    about = "TensorFlow Lite files with numbers and bytes changed"
    seconds = 20.0
    memory = 3 << 30

    def __init__(self) -> None:
        self._models = [small_model()]

    def prepare(self, folder: Path, corpus: Path | None) -> None:
        """Read the files of the corpus beside the one that is made here."""
        given = sorted((corpus / "tflite").glob("*.tflite")) if corpus is not None else []
        read = [path.read_bytes() for path in given if path.stat().st_size < LARGEST]
        self._models = [small_model(), *read]

    def check(self, tape: Tape) -> str:
        """Import a broken file."""
        try:
            from_tflite(broken(tape.choice(self._models), tape),
                        freeze_params=tape.random() < 0.8)
        except (ValueError, OpNotImplemented) as error:
            assert not isinstance(error.__cause__, MemoryError), "it took too much memory"
            return type(error).__name__
        return "imported"

    def program(self, values: list[int], error: str) -> str:
        """The file itself, whatever it was made from."""
        tape = Tape(values=values)
        data = base64.b64encode(broken(tape.choice(self._models), tape)).decode()
        freeze = tape.random() < 0.8
        return (
            "import base64\nfrom sterna.relay.frontend import from_tflite\n\n"
            f"from_tflite(base64.b64decode({data!r}), freeze_params={freeze})\n"
        )


FUZZER = TFLiteFiles()
