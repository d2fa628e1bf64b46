"""Out-of-process compilation of what other hands wrote: imported text, intrinsics by name.

LLVM ends the process where it cannot go on: an instruction that the processor does not have, an
intrinsic with wrong types. Then the other process ends, and here there is an error.
"""

import base64
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import llvmlite.binding as llvm

from sterna.codegen.llvm.machine import LLVMOptions, create_machine, optimize

_PROGRAM = (
    "import sys; sys.path[:] = sys.argv[1:]; "
    "from sterna.codegen.llvm.out_of_process import main; main()"
)


# What the other process is told of the target: the code is written already.
_TOLD = ("triple", "cpu", "features", "opt_level", "abi")


def compile_out_of_process(
    text: str, imports: Sequence[str], intrinsics: Sequence[str], options: LLVMOptions
) -> tuple[str, bytes]:
    """A module with imported texts linked into it: as text, and as an object file."""
    told = {name: getattr(options, name) for name in _TOLD}
    request = {"text": text, "imports": list(imports), "options": told}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *sys.path], input=json.dumps(request),
        capture_output=True, text=True, errors="replace", check=False,
    )
    if done.returncode != 0:
        parts = [*intrinsics, *(["the imported text"] if imports else [])]
        raise ValueError(
            f"LLVM cannot compile {', '.join(parts)} for {options.triple} "
            f"{options.cpu or 'generic'}: {_reason(done.stderr)}; are the types right, and has the "
            "target (-mcpu, -mattr) these instructions?"
        )
    answer: dict[str, str] = json.loads(done.stdout)
    if "error" in answer:
        raise ValueError(answer["error"])
    return answer["text"], base64.b64decode(answer["object"])


def _reason(words: str) -> str:
    """What LLVM said last."""
    known = re.findall(r"LLVM ERROR: (.*)|Assertion `(.*)' failed", words)
    lines = [first or second for first, second in known] or words.strip().splitlines()[-1:]
    return lines[-1] if lines else "it gave no reason"


# ---- in the other process ----


def main() -> None:
    """Answers the request on standard input."""
    request = json.load(sys.stdin)
    try:
        answer = _compile(request)
    except (RuntimeError, ValueError) as error:
        answer = {"error": str(error)}
    json.dump(answer, sys.stdout)


def _compile(request: dict[str, Any]) -> dict[str, str]:
    options = LLVMOptions(**request["options"])
    machine = create_machine(options)
    module = _parse(request["text"], "LLVM refuses the code")
    for text in request["imports"]:
        _link(module, _parse(text, "the text that import_llvm brings is wrong"))
    module.verify()
    linked = str(module)
    optimize(module, machine, options.opt_level)
    return {"text": linked, "object": base64.b64encode(machine.emit_object(module)).decode()}


def _parse(text: str, problem: str) -> llvm.ModuleRef:
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise ValueError(f"{problem}: {error}") from None
    return module


def _link(module: llvm.ModuleRef, text: llvm.ModuleRef) -> None:
    """Takes a text's functions over, for this module alone."""
    own = [f for f in text.functions if not f.is_declaration]
    names = [function.name for function in own]
    for function in own:
        _check_signature(module, function)
    # The text may come from a compiler that names the same machine in other words.
    text.triple, text.data_layout = module.triple, module.data_layout
    module.link_in(text)
    for name in names:
        module.get_function(name).linkage = "internal"


def _check_signature(module: llvm.ModuleRef, function: llvm.ValueRef) -> None:
    try:
        called = module.get_function(function.name)
    except NameError:
        return
    if not called.is_declaration:
        raise ValueError(f"import_llvm brings two functions {function.name}")
    wanted, given = str(called.global_value_type), str(function.global_value_type)
    if wanted != given:
        raise ValueError(
            f"{function.name} is called as {wanted}, but the text that import_llvm brings defines "
            f"it as {given}"
        )
