"""relay.quantize: quantisation of graphs of Relay by the classic interface.

    with relay.quantize.qconfig(calibrate_mode="kl_divergence", weight_scale="max"):
        module = relay.quantize.quantize(module, params, dataset)

Scales are symmetric and of whole tensors, as they always were; the result computes in integers by
the operators of qnn. `sterna.quantize` chooses better ones, of each channel and by the error of
layers' outputs.
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from sterna.driver.relay_build import build
from sterna.ir.module import IRModule
from sterna.ir.transform import PassContext, Sequential
from sterna.quantization.affine import SMALLEST_SCALE
from sterna.quantization.config import QConfig, current_qconfig, qconfig
from sterna.quantization.entropy import entropy_threshold
from sterna.quantization.histogram import Histogram
from sterna.quantization.relay_plan import RelayLayer, RelayPlan, plan_relay
from sterna.quantization.runner import NATIVE
from sterna.quantization.samples import far_out
from sterna.relay import transform
from sterna.relay.arrays import Array, to_numpy
from sterna.relay.expr import Call, Constant, Function, RelayExpr, Tuple, const
from sterna.relay.op import call
from sterna.relay.passes.bind_params import bind_params
from sterna.relay.passes.integer_arithmetic import integer_arithmetic
from sterna.relay.traverse import post_order, rebuild
from sterna.runtime import cpu
from sterna.runtime.graph_executor import GraphModule

__all__ = ["QConfig", "current_qconfig", "prerequisite_optimize", "qconfig", "quantize"]

PERCENTILE = 0.99999

Dataset = Iterable[Mapping[str, Any]]


def prerequisite_optimize(mod: IRModule, params: Mapping[str, Any] | None = None) -> IRModule:
    """The module with params as constants, norms as factors, and factors in the weights."""
    made = mod.shallow_copy()
    if params:
        made["main"] = bind_params(made["main"], params)
    steps = [
        transform.InferType(), transform.SimplifyInference(), transform.FoldConstant(),
        transform.FoldScaleAxis(), transform.CanonicalizeOps(), transform.FoldConstant(),
        transform.InferType(),
    ]
    with PassContext(opt_level=3):
        done: IRModule = Sequential(steps)(made)
    return done


def quantize(
    mod: IRModule | Function, params: Mapping[str, Any] | None = None,
    dataset: Dataset | None = None,
) -> IRModule:
    """A module that computes in integers, as `qconfig` says.

    dataset: dictionaries of inputs, which the modes kl_divergence and percentile choose scales by.
    """
    config = current_qconfig()
    whole = IRModule.from_expr(mod) if isinstance(mod, Function) else mod
    made = prerequisite_optimize(whole, params)
    plan = plan_relay(made["main"].body, config)
    if config.calibrate_mode == "global_scale":
        thresholds = dict.fromkeys(plan.tensors, config.global_scale)
    else:
        thresholds = _calibrated(made["main"], plan, config, dataset)
    made["main"] = _realized(made["main"], plan, thresholds, config)
    made = transform.InferType()(made)
    if not config.do_simulation:
        made["main"] = integer_arithmetic(made["main"])
        made = transform.FoldConstant()(transform.InferType()(made))
    return made


# ---- thresholds ----


def _calibrated(
    main: Function, plan: RelayPlan, config: QConfig, dataset: Dataset | None
) -> dict[int, float]:
    """The size at which each tensor is cut, by what the dataset makes of it."""
    if dataset is None:
        raise ValueError(
            f"calibrate_mode '{config.calibrate_mode}' needs a dataset: dictionaries of inputs by "
            'name; or take calibrate_mode="global_scale"'
        )
    data = _usual(list(dataset) if isinstance(dataset, Iterator) else dataset)
    names = list(plan.tensors)
    size = config.calibrate_chunk_by if config.calibrate_chunk_by > 0 else max(len(names), 1)
    seen = {name: Histogram() for name in names}
    for start in range(0, len(names), size):
        chunk = names[start : start + size]
        _count(main, [plan.tensors[name] for name in chunk], [seen[name] for name in chunk], data)
    groups: dict[int, Histogram] = {}
    for name, histogram in seen.items():
        key = plan.group_of(name)
        groups[key] = groups[key].joined(histogram) if key in groups else histogram
    cut = {key: _threshold(histogram, config) for key, histogram in groups.items()}
    return {name: cut[plan.group_of(name)] for name in names}


def _usual(dataset: Dataset) -> Dataset:
    """Without samples that are far out of the others, which would decide every scale."""
    given = ({name: value.numpy() if hasattr(value, "numpy") else np.asarray(value)
              for name, value in sample.items()} for sample in dataset)
    left_out = far_out(given)
    for place, what in left_out.items():
        warnings.warn(f"sample {place} of the dataset {what}; it is left out", stacklevel=4)
    if not left_out:
        return dataset
    return [sample for place, sample in enumerate(dataset) if place not in left_out]


def _count(
    main: Function, shown: list[RelayExpr], seen: list[Histogram], data: Dataset
) -> None:
    """Run the graph with some of its tensors as results, and count their numbers."""
    module = IRModule.from_expr(Function(main.params, Tuple(tuple(shown))))
    runner = GraphModule(build(module, NATIVE)["default"](cpu()))
    known = {var.name_hint for var in main.params}
    samples = 0
    for sample in data:
        for name, value in sample.items():
            if name not in known:
                raise ValueError(
                    f"the dataset gives '{name}'; the module's inputs are {', '.join(known)}"
                )
            runner.set_input(name, np.asarray(value) if not hasattr(value, "numpy") else value)
        runner.run()
        for place, histogram in enumerate(seen):
            numbers = runner.get_output(place).numpy()
            if not np.all(np.isfinite(numbers)):
                raise ValueError(
                    f"sample {samples} of the dataset makes numbers that are not finite"
                )
            histogram.add(numbers)
        samples += 1
    if samples == 0:
        raise ValueError("the dataset has no samples")


def _threshold(seen: Histogram, config: QConfig) -> float:
    if config.calibrate_mode == "kl_divergence":
        return entropy_threshold(seen)
    return max(map(abs, seen.percentile(PERCENTILE)))


# ---- integers ----


def _realized(
    main: Function, plan: RelayPlan, thresholds: Mapping[int, float], config: QConfig
) -> Function:
    """The function with planned tensors and weights quantised and dequantised."""
    memo: dict[int, RelayExpr] = {}
    scales = {key: _scale(threshold, config.nbit_input) for key, threshold in thresholds.items()}
    for expr in post_order(main.body):
        layer = plan.layers.get(id(expr))
        made = rebuild(expr, memo)
        if layer is not None:
            assert isinstance(made, Call)
            made = _layer(made, layer, config)
        elif id(expr) in plan.biased:
            assert isinstance(made, Call)
            layer = plan.biased[id(expr)]
            made = _with_bias(made, layer, scales[id(layer.data)], config)
        if id(expr) in scales:
            made = _rounded(made, scales[id(expr)], config.nbit_input)
        memo[id(expr)] = made
    return Function(main.params, memo[id(main.body)], None, main.type_params, main.attrs)


def _scale(threshold: float, bits: int) -> float:
    return float(np.float32(max(threshold / 2 ** (bits - 1), SMALLEST_SCALE)))


def _rounded(expr: RelayExpr, scale: float, bits: int) -> RelayExpr:
    """A tensor as the numbers that its integers stand for."""
    if bits < 8:
        reach = (2 ** (bits - 1) - 1) * scale
        expr = call("clip", expr, a_min=-reach, a_max=reach)
    factor, zero = const(np.float32(scale)), const(np.int32(0))
    whole = call("qnn.quantize", expr, factor, zero, out_dtype="int8", rounding="TO_EVEN")
    return call("qnn.dequantize", whole, factor, zero)


def _weight_scale(weights: Array, config: QConfig) -> float:
    reach = float(np.abs(weights).max(initial=0.0))
    if config.weight_scale == "power2" and reach:
        reach = float(2.0 ** np.ceil(np.log2(reach)))
    return _scale(reach, config.nbit_weight)


def _layer(made: Call, layer: RelayLayer, config: QConfig) -> RelayExpr:
    """A layer with weights in integers."""
    weights = to_numpy(layer.weight.data)
    factor, reach = _weight_scale(weights, config), 2 ** (config.nbit_weight - 1) - 1
    whole = np.clip(np.rint(weights / np.float32(factor)), -reach, reach).astype("int8")
    return Call(made.op, (made.args[0], _dequantized(whole, factor)), made.attrs)


def _with_bias(made: Call, layer: RelayLayer, scale: float, config: QConfig) -> RelayExpr:
    """A sum whose constant counts in the units of the layer's sums."""
    factor = np.float32(scale) * np.float32(_weight_scale(to_numpy(layer.weight.data), config))
    args = []
    for arg in made.args:
        if isinstance(arg, Constant):
            counted = np.rint(to_numpy(arg.data).astype("float64") / factor)
            whole = np.clip(counted, -(2**30), 2**30).astype("int32")
            args.append(_dequantized(whole, float(factor)))
        else:
            args.append(arg)
    return Call(made.op, tuple(args), made.attrs)


def _dequantized(whole: Array, scale: float) -> RelayExpr:
    made: RelayExpr = call(
        "qnn.dequantize", const(whole), const(np.float32(scale)), const(np.int32(0)))
    return made

