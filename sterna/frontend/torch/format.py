"""The format PyTorch: exported programs in memory and in .pt2 files, modules, TorchScript."""

import sys

from sterna.frontend.format import Format
from sterna.frontend.known_formats import first_in_zip
from sterna.frontend.torch.program import Program

# Names of what archives of PyTorch begin with, behind a folder of the archive's own name.
_PARTS = (b"/data.pkl", b"/archive_format", b"/.format_version", b"/byteorder", b"/version")
_OLD_EXPORT = b"serialized_exported_program"


def _sniff(head: bytes) -> bool:
    first = first_in_zip(head)
    is_pickle = head[:2] == b"\x80\x02" and head[2:3] in (b"\x8a", b"c")
    folder = first.partition(b"/")[2]
    is_export = folder.startswith((b"data/weights/", b"data/constants/", b"models/"))
    return is_pickle or is_export or first.endswith(_PARTS) or first.startswith(_OLD_EXPORT)


def _takes(model: object) -> bool:
    """Whether an object is a program, or a module, script or export, when torch is loaded."""
    if isinstance(model, Program):
        return True
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(
        model, torch.nn.Module | torch.export.ExportedProgram | torch.jit.ScriptFunction
    )


FORMAT = Format(
    name="PyTorch",
    suffixes=(".pt", ".pt2", ".pth"),
    sniff=_sniff,
    load="sterna.frontend.torch.load_model:load",
    takes=_takes,
    trace="sterna.frontend.torch.open_program:ProgramTrace",
    functions={"from_pytorch": "sterna.frontend.torch.from_pytorch:from_pytorch"},
)
