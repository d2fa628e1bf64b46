"""Where values lie: on_device says it of a value, device_copy takes a value elsewhere.

Neither computes anything. PlanDevices reads both and leaves copies where values cross. Nor do the
marks of what other compilers take, which PartitionGraph reads.
"""

from typing import Any

from sterna.ir.types import Type
from sterna.op.checks import tensor
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.builders import make
from sterna.relay.expr import Call, RelayExpr
from sterna.relay.op import Case, OpRecord, register
from sterna.runtime.device import device_type_of
from sterna.te import Tensor


@attributes
class OnDeviceAttrs(Attrs):
    """Of on_device."""

    device_type: int
    constrain_result: bool = False
    constrain_body: bool = True


@attributes
class DeviceCopyAttrs(Attrs):
    """Of device_copy: DLPack's numbers of two kinds of devices."""

    src_device: int
    dst_device: int


@attributes
class CompilerAttrs(Attrs):
    """Of the marks around what another compiler takes."""

    compiler: str


def on_device(
    body: RelayExpr, device: Any, constrain_result: bool = False, constrain_body: bool = True
) -> RelayExpr:
    """Say on which device a value is computed."""
    made: Call = make(
        "on_device", body, device_type=device_type_of(device), constrain_result=constrain_result,
        constrain_body=constrain_body,
    )
    return made


def device_copy(data: RelayExpr, src_device: Any, dst_device: Any) -> RelayExpr:
    """Copy a value from one device to another."""
    made: Call = make(
        "device_copy", data, src_device=device_type_of(src_device),
        dst_device=device_type_of(dst_device),
    )
    return made


def _same(attrs: Attrs, data: Type) -> Type:
    return data


def _infer_copy(attrs: DeviceCopyAttrs, data: Type) -> Type:
    return tensor(data, "data")


def _itself(attrs: Attrs, data: Array) -> Array:
    return data


def _tensor(attrs: Attrs, out: Type, data: Tensor) -> Tensor:
    return data


register(OpRecord(
    "on_device",
    inputs=("data",),
    attrs=OnDeviceAttrs,
    infer=_same,
    compute=_tensor,
    reference=_itself,
    builder=on_device,
    is_view=True,
    cases=[Case(((2, 3),), {"device_type": 1})],
    doc="Says on which kind of device its operand is computed, by DLPack's number; with "
        "constrain_result also that what reads it does so there. A build for several targets "
        "reads it, and copies what crosses; see PlanDevices.",
))

register(OpRecord(
    "device_copy",
    inputs=("data",),
    attrs=DeviceCopyAttrs,
    infer=_infer_copy,
    compute=_tensor,
    reference=_itself,
    builder=device_copy,
    is_view=True,
    cases=[Case(((2, 3),), {"src_device": 1, "dst_device": 1})],
    doc="Its operand, copied from one kind of device to another, by DLPack's numbers.",
))

for _name, _what in (("begin", "Its operand, which a region of another compiler reads."),
                     ("end", "Its operand, which a region of another compiler gives.")):
    register(OpRecord(
        f"annotation.compiler_{_name}",
        inputs=("data",),
        attrs=CompilerAttrs,
        infer=_same,
        compute=_tensor,
        reference=_itself,
        simplify=lambda attrs, args: args[0],
        is_view=True,
        cases=[Case(((2, 3),), {"compiler": "own"})],
        doc=f"{_what} It computes nothing; see PartitionGraph.",
    ))
