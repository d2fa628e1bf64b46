"""Imports broken TorchScript files: they are imported or refused, and no pickle is executed."""

import base64
import functools
import importlib.util
import io
import random
import warnings
import zipfile
from pathlib import Path
from typing import Any

from sterna.frontend.format import ImportOptions
from sterna.frontend.torch.load_model import load
from sterna.support.errors import OpNotImplemented
from sterna.testing.fuzz.fuzzer import Fuzzer
from sterna.testing.fuzz.mutate import mutate
from sterna.testing.fuzz.tape import Tape

# What a pickled entry would make if it were executed, in the fuzzer's own folder.
MARK = "executed"

# What is told of a file whose program has come to take more or fewer inputs.
INPUTS_DIFFER = "example inputs are given"

SOURCE = """
def forward(self, x: Tensor) -> Tensor:
    y = torch.mm(x, self.weight)
    for i in range(x.size(0)):
        y = y + float(i)
    if x.size(1) > 3:
        y = torch.relu_(y)
    return torch.cat([y, y.view(-1, 3)], 1).sum(0, keepdim=True)
"""


@functools.cache
def script_file() -> bytes:
    """A file as torch.jit.save writes it: code, pickled attributes and raw weights.

    It is made once in a process: PyTorch names the classes of a second one otherwise, or refuses.
    """
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        layer = torch.nn.Module()
        layer.weight = torch.nn.Parameter(torch.ones(4, 3), requires_grad=False)
        module: Any = torch.jit.script(layer)
        module.define(SOURCE)
        made = io.BytesIO()
        torch.jit.save(module, made)
    return made.getvalue()


def entries_of(data: bytes) -> dict[str, bytes]:
    """The entries of an archive by name."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def archived(entries: dict[str, bytes]) -> bytes:
    """An archive of entries, stored as they are."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return made.getvalue()


def executing(mark: Path) -> bytes:
    """A pickle that makes a file where it is executed."""
    call = f"cpathlib\nPath\n(S{str(mark)!r}\ntR."
    return b"cbuiltins\ngetattr\n(" + call[:-1].encode() + b"S'touch'\ntR(tR."


def broken(whole: dict[str, bytes], mark: Path, rng: random.Random) -> bytes:
    """A copy of a file with something wrong."""
    entries = dict(whole)
    names = sorted(entries)
    for _ in range(rng.choice((1, 1, 2, 3))):
        name = rng.choice(names)
        kind = rng.randrange(6)
        if kind == 0:
            entries.pop(name, None)
        elif kind == 1:
            entries[name] = whole[rng.choice(names)]
        elif kind == 2 and name.endswith(".pkl"):
            entries[name] = executing(mark)
        elif kind == 3:
            entries[rng.choice((f"{name}.debug_pkl", "../x", "/x", name.upper()))] = whole[name]
        else:
            entries[name] = mutate(whole[name], rng)
    made = archived(entries)
    return mutate(made, rng) if rng.random() < 0.1 else made


class ScriptFiles(Fuzzer):
    """Broken TorchScript files are imported or refused, and nothing in them is executed."""

    name = "script-files"
    about = "TorchScript files with entries and bytes changed, and pickles that would do harm"
    seconds = 30.0
    memory = 4 << 30

    def missing(self) -> str | None:
        """PyTorch, which reads these files."""
        return None if importlib.util.find_spec("torch") is not None else "torch"

    def prepare(self, folder: Path, corpus: Path | None) -> None:
        """Write a whole file once; broken ones are made of its entries."""
        self._path, self._mark = folder / "broken.pt", folder / MARK
        self._entries = entries_of(script_file())

    def check(self, tape: Tape) -> str:
        """Import a broken file."""
        import torch

        self._path.write_bytes(broken(self._entries, self._mark, tape))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                load(self._path, ImportOptions(example_inputs=(torch.zeros(2, 4),)))
        except (ValueError, OpNotImplemented) as error:
            assert not isinstance(error.__cause__, MemoryError), "it took too much memory"
            return type(error).__name__
        except TypeError as error:
            if INPUTS_DIFFER not in str(error):
                raise
            return "other inputs"
        finally:
            assert not self._mark.exists(), "a pickled entry was executed"
        return "imported"

    def program(self, values: list[int], error: str) -> str:
        """The file itself."""
        made: Any = broken(entries_of(script_file()), Path(MARK), Tape(values=values))
        data = base64.b64encode(made).decode()
        return (
            "import base64\nfrom pathlib import Path\nimport torch\nimport sterna\n\n"
            f"Path('broken.pt').write_bytes(base64.b64decode({data!r}))\n"
            "sterna.compile('broken.pt', (torch.zeros(2, 4),))\n"
        )


FUZZER = ScriptFiles()
