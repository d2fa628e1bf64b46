"""The kernels of recurrent networks on GPUs."""

from sterna.op.gates import Gate
from sterna.op.recurrent_blocks import BlockSteps
from sterna.op.recurrent_clusters import ClusterSteps
from sterna.op.recurrent_products import ProductSteps
from sterna.op.recurrent_shares import Share
from sterna.op.recurrent_steps import Options, Step
from sterna.tir.ir_builder import BufferVar, IRBuilder


def write_blocks(
    step: Step, attrs: Options, ib: IRBuilder, operands: dict[str, BufferVar],
    outs: list[BufferVar], functions: list[list[Gate]], share: Share,
) -> None:
    """All steps of all sequences, both directions side by side where their functions are one."""
    which = [range(place, place + 1) for place in range(len(functions))]
    if all(each == functions[0] for each in functions):
        which = [range(len(functions))]
    for directions in which:
        given = (step, attrs, ib, operands, outs, directions, functions[directions.start])
        with ib.new_scope():
            if share.in_cluster:
                ClusterSteps(*given, share.in_cluster).write()
            elif share.tiles:
                ProductSteps(*given, share).write()
            else:
                BlockSteps(*given, share).write()
