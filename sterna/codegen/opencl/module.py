"""A program of OpenCL C from a list of kernels."""

import re
from collections.abc import Sequence

from sterna.codegen.c.stmt import ModuleState
from sterna.codegen.opencl.kernel import kernel_text
from sterna.codegen.opencl.prelude import COPY, DOUBLES, PRELUDE
from sterna.tir.passes.expand_tiles import expand_tiles
from sterna.tir.stmt import PrimFunc

_DOUBLE = re.compile(r"\bdouble\b")


def generate(kernels: Sequence[PrimFunc]) -> str:
    """The kernels as one program, with the functions that they call before them."""
    state = ModuleState()
    for kernel in kernels:
        state.functions[kernel.name] = kernel
        state.c_names[kernel.name] = kernel.name
    texts = [kernel_text(state, expand_tiles(kernel)) for kernel in kernels]
    sections = [*state.helpers.text(), *texts]
    if any("memcpy(" in text for text in sections):
        sections.insert(0, COPY)
    sections.insert(0, PRELUDE)
    if any(_DOUBLE.search(text) for text in sections):
        sections.insert(0, DOUBLES)
    return "\n\n".join(sections) + "\n"
