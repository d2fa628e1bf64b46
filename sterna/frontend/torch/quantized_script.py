"""Eager quantised modules in TorchScript: their operators as float ones between grids.

A quantised tensor is the float tensor that it stands for, which lies on the grid of its scale and
zero point. Every operator so becomes the float operator and a quantisation with its reverse, as
PT2E writes them, and graphs of that form become integers.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from sterna.support.errors import OpNotImplemented


class Grid(NamedTuple):
    """Where the numbers of a quantised tensor lie."""

    scale: float
    zero_point: int
    dtype: str


RANGES = {"uint8": (0, 255), "int8": (-128, 127), "int32": (-(1 << 31), (1 << 31) - 1)}
# TorchScript's numbers of quantised types, and what they are kept as.
KEPT_AS = {12: "int8", 13: "uint8", 14: "int32"}

# Operators that only move elements, and those whose results lie on the grid of their operand.
MOVING = frozenset({
    "flatten", "view", "reshape", "permute", "transpose", "slice", "select", "squeeze",
    "unsqueeze", "contiguous", "chunk", "split", "clone", "dropout", "max_pool2d", "relu", "relu_",
})
AVERAGING = frozenset({
    "adaptive_avg_pool2d", "avg_pool2d", "mean", "hardtanh", "clamp", "upsample_nearest2d",
    "upsample_bilinear2d",
})


class Recorder(Protocol):
    """What a run of a graph offers: fake results are recorded as steps."""

    torch: Any

    def set_result(self, node: Any, made: Any) -> None:
        """The result of a node."""

    def emit(self, node: Any, target: str, arguments: dict[str, Any], made: Any) -> Any:
        """A step that makes a fake tensor, which is given back."""

    def hold(self, node: Any, tensor: Any) -> Any:
        """A tensor of the model as a weight."""

    def call_plain(self, node: Any, given: Sequence[Any]) -> Any:
        """The result of a node's operator, recorded."""

    def where(self, node: Any) -> str:
        """How messages name a node."""


class QuantizedTensors:
    """The grids of a run's quantised tensors."""

    def __init__(self, run: Recorder) -> None:
        self.run = run
        self.grids: dict[int, Grid] = {}

    def handles(self, kind: str, given: Sequence[Any]) -> bool:
        """Whether an operator is one of quantised tensors."""
        is_own = kind.startswith("quantized::") or kind in (
            "aten::quantize_per_tensor", "aten::dequantize"
        )
        return is_own or any(id(each) in self.grids for each in given)

    def call(self, node: Any, given: Sequence[Any]) -> None:
        """One operator."""
        space, _, name = node.kind().partition("::")
        if space == "quantized":
            plain = name.removesuffix("_relu")
            handler = HANDLERS.get(plain)
            if handler is None:
                raise OpNotImplemented(f"{self.run.where(node)}: {node.kind()}")
            made = handler(self, node, *given[: -2 if plain not in FREE else None])
            if name.endswith("_relu"):
                made = self._plain(node, "relu.default", {"self": made})
            scale, zero = (given[-2], given[-1]) if plain not in FREE else self._as_operand(given)
            grid = Grid(float(scale), int(zero), self._dtype(given))
            self.run.set_result(node, self._onto(node, made, grid))
        elif name == "quantize_per_tensor":
            data, scale, zero, dtype = given
            grid = Grid(float(scale), int(zero), KEPT_AS[int(dtype)])
            self.run.set_result(node, self._onto(node, data, grid))
        elif name == "dequantize":
            self.run.set_result(node, self._plain(node, "alias.default", {"self": given[0]}))
        else:
            self._of_floats(node, name, given)

    def _of_floats(self, node: Any, name: str, given: Sequence[Any]) -> None:
        """An operator that quantised tensors share with others."""
        grid = next(self.grids[id(each)] for each in given if id(each) in self.grids)
        if name not in MOVING | AVERAGING:
            raise OpNotImplemented(f"{self.run.where(node)}: {node.kind()} of quantised tensors")
        made = self.run.call_plain(node, given)
        if name in AVERAGING:
            self.run.set_result(node, self._onto(node, made, grid))
            return
        for each in made if isinstance(made, list | tuple) else [made]:
            self.grids[id(each)] = grid

    # ---- parts of operators ----

    def _plain(self, node: Any, operator: str, arguments: dict[str, Any]) -> Any:
        """An ATen operator of float tensors."""
        name, _, overload = operator.partition(".")
        packet = getattr(getattr(self.run.torch.ops.aten, name), overload)
        schema = [each.name for each in packet._schema.arguments if not each.kwarg_only]
        made = packet(*(arguments[each] for each in schema if each in arguments))
        return self.run.emit(node, f"aten.{operator}", arguments, made)

    def _onto(self, node: Any, data: Any, grid: Grid) -> Any:
        """Numbers rounded to a grid."""
        low, high = RANGES[grid.dtype]
        facts = {"scale": grid.scale, "zero_point": grid.zero_point, "quant_min": low,
                 "quant_max": high, "dtype": grid.dtype}
        space = "quantized_decomposed"
        kept = data.to(getattr(self.run.torch, grid.dtype))
        whole = self.run.emit(node, f"{space}.quantize_per_tensor.default",
                              {"input": data, **facts}, kept)
        made = self.run.emit(node, f"{space}.dequantize_per_tensor.default",
                             {"input": whole, **facts}, whole.to(data.dtype))
        self.grids[id(made)] = grid
        return made

    def weights(self, node: Any, unpack: Callable[[Any], Any], packed: Any) -> tuple[Any, Any]:
        """The weight of a packed layer, whose integers are kept, and its bias."""
        from torch._subclasses.fake_tensor import unset_fake_temporarily

        torch = self.run.torch
        with unset_fake_temporarily():
            weight, bias = unpack(packed)
            integers = weight.int_repr()
            is_one = weight.qscheme() == torch.per_tensor_affine
            if is_one:
                scale, zero, axis = weight.q_scale(), weight.q_zero_point(), -1
            else:
                scale = weight.q_per_channel_scales().float()
                zero = weight.q_per_channel_zero_points().int()
                axis = weight.q_per_channel_axis()
        whole = self.run.hold(node, integers)
        dtype = str(integers.dtype).removeprefix("torch.")
        low, high = RANGES[dtype]
        facts: dict[str, Any] = {"quant_min": low, "quant_max": high, "dtype": dtype}
        if is_one:
            facts |= {"scale": scale, "zero_point": zero}
        else:
            facts |= {"scales": self.run.hold(node, scale), "axis": axis,
                      "zero_points": self.run.hold(node, zero)}
        how = "dequantize_per_tensor" if is_one else "dequantize_per_channel"
        made = self.run.emit(node, f"quantized_decomposed.{how}.default",
                             {"input": whole, **facts}, whole.to(torch.float32))
        return made, None if bias is None else self.run.hold(node, bias)

    def _dtype(self, given: Sequence[Any]) -> str:
        first = given[0][0] if isinstance(given[0], list | tuple) else given[0]
        return self.grids[id(first)].dtype

    def _as_operand(self, given: Sequence[Any]) -> tuple[float, int]:
        grid = self.grids[id(given[0])]
        return grid.scale, grid.zero_point

    # ---- operators ----

    def _linear(self, node: Any, data: Any, packed: Any) -> Any:
        unpack = self.run.torch.ops.quantized.linear_unpack
        weight, bias = self.weights(node, unpack, packed)
        return self._plain(node, "linear.default", {"input": data, "weight": weight, "bias": bias})

    def _conv(self, node: Any, data: Any, packed: Any) -> Any:
        unpack = self.run.torch.ops.quantized.conv2d_unpack
        weight, bias = self.weights(node, unpack, packed)
        return self._plain(node, "conv2d.default", {
            "input": data, "weight": weight, "bias": bias,
            "stride": list(packed.stride()), "padding": list(packed.padding()),
            "dilation": list(packed.dilation()), "groups": packed.groups(),
        })

    def _add(self, node: Any, data: Any, other: Any) -> Any:
        return self._plain(node, "add.Tensor", {"self": data, "other": other})

    def _mul(self, node: Any, data: Any, other: Any) -> Any:
        return self._plain(node, "mul.Tensor", {"self": data, "other": other})

    def _cat(self, node: Any, tensors: Sequence[Any], dim: int) -> Any:
        return self._plain(node, "cat.default", {"tensors": list(tensors), "dim": dim})

    def _hardswish(self, node: Any, data: Any) -> Any:
        return self._plain(node, "hardswish.default", {"self": data})

    def _leaky_relu(self, node: Any, data: Any, slope: float, inplace: bool) -> Any:
        return self._plain(node, "leaky_relu.default", {"self": data, "negative_slope": slope})

    def _sigmoid(self, node: Any, data: Any) -> Any:
        return self._plain(node, "sigmoid.default", {"self": data})

    def _relu6(self, node: Any, data: Any, inplace: bool) -> Any:
        return self._plain(node, "relu6.default", {"self": data})


Handler = Callable[..., Any]
# What quantized:: operators compute; most are given the scale and zero point of their result.
HANDLERS: dict[str, Handler] = {
    "linear": QuantizedTensors._linear, "conv2d": QuantizedTensors._conv,
    "add": QuantizedTensors._add, "mul": QuantizedTensors._mul, "cat": QuantizedTensors._cat,
    "hardswish": QuantizedTensors._hardswish, "leaky_relu": QuantizedTensors._leaky_relu,
    "sigmoid": QuantizedTensors._sigmoid, "relu6": QuantizedTensors._relu6,
}
# Those whose results have the grid of their operand.
FREE = frozenset({"relu6"})
