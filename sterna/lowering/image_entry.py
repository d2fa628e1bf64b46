"""The function that runs a block for one image after the other.

    def NAME(inputs..., constants..., outputs..., workspace, n):
        for image in range(n):
            NAME_image(the image's inputs..., constants..., its outputs..., workspace)

Beside it stands the one that tells all extents, as of any open block. The memory is that of one
image, whatever the batch.
"""

from collections.abc import Sequence

from sterna.ir import build
from sterna.ir.expr import INT32, Call, Expr, StringImm, Var
from sterna.ir.types import TensorType, flatten_type
from sterna.lowering.entry import EntryFunction
from sterna.lowering.one_image import OneImage, images_of
from sterna.lowering.open_entry import INT64, OpenEntry, Operand, element, extents_function
from sterna.lowering.work import bytes_of
from sterna.relay.expr import Function
from sterna.relay.requirements import Requirement
from sterna.tir.stmt import Evaluate, For, ForKind, PrimFunc


def make_image_entry(
    whole: Function, made: OneImage, entry: EntryFunction, name: str,
    requirements: Sequence[Requirement],
) -> OpenEntry:
    """The functions of a block, of whose image the function is known.

    whole: the block of any number of images.
    """
    given = [leaf for param in whole.params for leaf in flatten_type(param.checked_type)]
    results = flatten_type(whole.body.checked_type)
    inputs = [Operand.of_type(t.name, k) for t, k in zip(entry.inputs, given, strict=True)]
    constants = [Operand.of_type(tensor.name, tensor.type) for tensor in entry.constants]
    outputs = [Operand.of_type(f"output{place}", kind) for place, kind in enumerate(results)]
    (size,) = entry.pool_bytes
    total = build.const(max(1, size), INT64)
    workspace = Operand.workspace(total)
    image = Var("image", INT64)

    def at(operand: Operand, kind: TensorType, own: int) -> Expr:
        step = own if images_of(kind, made.count) else 0
        return element(operand.memory, image * build.const(step, INT64))

    places = [
        *(at(o, k, t.bytes) for o, k, t in zip(inputs, given, entry.inputs, strict=True)),
        *(element(operand.memory, build.const(0)) for operand in constants),
        *(at(o, k, bytes_of(t.type))
          for o, k, t in zip(outputs, results, entry.outputs, strict=True)),
        element(workspace.memory, build.const(0)),
    ]
    call = Evaluate(Call(INT32, "try_call", (StringImm(entry.function.name), *places)))
    body = For(image, build.const(0, INT64), build.cast(INT64, made.count), ForKind.SERIAL, call)
    operands = (*inputs, *constants, *outputs, workspace)
    first = len(inputs) + len(constants)
    attrs = {
        "declared": (*(each.declared for each in operands), None), "noalias": False,
        "written": tuple(range(first, len(operands))),
    }
    params = (*(each.memory.data for each in operands), made.count)
    buffers = (*(each.memory for each in operands), None)
    return OpenEntry(
        PrimFunc(name, params, buffers, body, attrs),
        extents_function(
            f"{name}_extents", [each.declared for each in inputs], [made.count], total, results,
            requirements,
        ),
        len(inputs), [tensor.name for tensor in entry.constants], results,
    )
