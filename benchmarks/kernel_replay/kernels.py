"""One kernel as records: its loops under names that do not matter, and its code."""

import re
from collections import Counter
from collections.abc import Callable

from kernel_replay.records import Folder, KernelRecord

from sterna.driver.kernel import KernelNotes, annotated_functions
from sterna.ir.expr import Var
from sterna.ir.node import Node, post_order
from sterna.ir.structural import structural_hash
from sterna.relay.expr import Function
from sterna.support.recursion import deep_recursion
from sterna.target import Target
from sterna.tir.stmt import Buffer, PrimFunc

NAME = "kernel"
# A line of assembly that is an instruction; labels stand at the margin, directives have a dot.
INSTRUCTION = re.compile(r"^\s+([A-Za-z][\w.]*)", re.MULTILINE)
# What a printer puts for an expression that is too deep to read.
CUT = "..."


CodeOf = Callable[[PrimFunc, str], str]
"""The code of loops, which are also given as text."""


def record_kernel(
    function: Function, target: Target, folder: Folder, code_of: CodeOf | None
) -> KernelRecord:
    """Compile a fused function and keep its texts; without code_of its loops alone."""
    try:
        (loops,), notes = annotated_functions(NAME, function, target, packed=False)
        rename(loops)
        text = loops_text(loops)
        code = code_of(loops, text) if code_of is not None else ""
    except Exception as error:  # what does not compile is a finding too
        return KernelRecord(error=f"{type(error).__name__}: {error}")
    is_assembly = "asm" in target.kind.code_generator().forms
    counted = Counter(INSTRUCTION.findall(code)) if is_assembly else {}
    return KernelRecord(
        anchor=notes.anchor,
        schedule=told(notes),
        loops=folder.put_text(text),
        lines=text.count("\n") + 1,
        code=folder.put_text(code) if code else "",
        instructions=dict(sorted(counted.items())),
    )


def told(notes: KernelNotes) -> str:
    """What a schedule decided: its own words first, then its other choices."""
    choices = dict(notes.choices)
    words = [choices.pop("schedule", "")]
    return "; ".join([word for word in words if word] + [f"{k} {v}" for k, v in choices.items()])


def rename(loops: PrimFunc) -> None:
    """Name variables and buffers by the places where they first stand."""
    count = 0

    def visit(node: Node) -> None:
        nonlocal count
        if isinstance(node, Var):
            node.name = f"v{count}"
        elif isinstance(node, Buffer):
            node.name = f"b{count}"
            node.data.name = f"b{count}"
        else:
            return
        count += 1

    post_order(loops, visit)


def loops_text(loops: PrimFunc) -> str:
    """Loops as text; where a printer cuts it short, a hash says the rest."""
    text = repr(loops)
    return f"{text}\n# {structural_hash(loops):016x}" if CUT in text else text


def code_text(loops: PrimFunc, target: Target) -> str:
    """The assembly of loops, or their C."""
    with deep_recursion():
        generator = target.kind.code_generator()
        return generator.compile([loops], target, NAME).source(generator.forms[-1])
