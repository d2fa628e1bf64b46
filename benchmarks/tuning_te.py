"""Products, convolutions and softmax as users write them in te, and tune them, beside our own.

Each is tuned through meta_schedule.tune_tir, and through an AutoTVM template where it is named so,
and then run in turns with the kernel that relay.build makes of the operator for the same shape,
with weights that are inputs in both.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rows import Row

import sterna
from sterna import autotvm, relay, te
from sterna import meta_schedule as ms
from sterna.contrib import graph_executor
from sterna.target import Target

# Of our own kernel's speed, what a tuned one reaches at the least.
LEAST = 0.9
TURNS = 15

Tensors = list[te.Tensor]


def matmul(rows: int, columns: int, depth: int) -> Tensors:
    a, b = te.placeholder((rows, depth), name="a"), te.placeholder((depth, columns), name="b")
    k = te.reduce_axis((0, depth), name="k")
    return [a, b, te.compute(
        (rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c"
    )]


def bordered(x: te.Tensor, places: Sequence[int]) -> te.Tensor:
    """An image with a border of one pixel; places: which of its axes are spatial."""
    sizes = [int(str(extent)) for extent in x.shape]
    shape = [size + 2 if place in places else size for place, size in enumerate(sizes)]

    def element(*at: Any) -> Any:
        inside = [test for p in places for test in (at[p] >= 1, at[p] <= sizes[p])]
        moved = [index - 1 if place in places else index for place, index in enumerate(at)]
        return te.if_then_else(te.all(*inside), x(*moved), 0.0)

    made: te.Tensor = te.compute(shape, element, name="bordered")
    return made


def conv_nchw(size: int, inputs: int, outputs: int) -> Tensors:
    x = te.placeholder((1, inputs, size, size), name="x")
    w = te.placeholder((outputs, inputs, 3, 3), name="w")
    c, p, q = (te.reduce_axis((0, n), name=a) for a, n in (("c", inputs), ("p", 3), ("q", 3)))
    image = bordered(x, (2, 3))
    return [x, w, te.compute(
        (1, outputs, size, size),
        lambda n, o, i, j: te.sum(image[n, c, i + p, j + q] * w[o, c, p, q], axis=[c, p, q]),
        name="conv",
    )]


def conv_nhwc(size: int, inputs: int, outputs: int) -> Tensors:
    x = te.placeholder((1, size, size, inputs), name="x")
    w = te.placeholder((3, 3, inputs, outputs), name="w")
    c, p, q = (te.reduce_axis((0, n), name=a) for a, n in (("c", inputs), ("p", 3), ("q", 3)))
    image = bordered(x, (1, 2))
    return [x, w, te.compute(
        (1, size, size, outputs),
        lambda n, i, j, o: te.sum(image[n, i + p, j + q, c] * w[p, q, c, o], axis=[p, q, c]),
        name="conv",
    )]


def softmax(rows: int, columns: int) -> Tensors:
    x = te.placeholder((rows, columns), name="x")
    r, s = (te.reduce_axis((0, columns), name=name) for name in "rs")
    most = te.compute((rows,), lambda i: te.max(x[i, r], axis=r), name="most")
    power = te.compute((rows, columns), lambda i, j: te.exp(x[i, j] - most[i]), name="power")
    total = te.compute((rows,), lambda i: te.sum(power[i, s], axis=s), name="total")
    return [x, te.compute((rows, columns), lambda i, j: power[i, j] / total[i], name="softmax")]


@autotvm.template("benchmarks/matmul")
def matmul_template(rows: int, columns: int, depth: int) -> tuple[te.Schedule, Tensors]:
    """Panels of b, rows of a in registers, an unrolled step: what a user who knows it writes."""
    a, b, c = matmul(rows, columns, depth)
    s, cfg = te.create_schedule(c.op), autotvm.get_config()
    tile = s.cache_write(c, "local")
    i, j = s[c].op.axis
    cfg.define_split("rows", i, num_outputs=2, policy="candidate",
                     candidate=[(-1, n) for n in (8, 4, 6, 7, 12)])
    cfg.define_knob("hold", [True, False])
    cfg.define_split("columns", j, num_outputs=2, policy="candidate",
                     candidate=[(-1, n) for n in (8, 12, 16, 4, 32)])
    cfg.define_split("step", s[tile].op.reduce_axis[0], num_outputs=2, policy="candidate",
                     candidate=[(-1, n) for n in (4, 1, 2, 8)])
    outer_row, row = cfg["rows"].apply(s, c, i)
    outer_column, column = cfg["columns"].apply(s, c, j)
    s[c].reorder(outer_column, outer_row, row, column)
    s[c].unroll(row)
    s[c].vectorize(column)
    s[c].parallel(outer_column)
    s[tile].compute_at(s[c], outer_row)
    outer_step, step = cfg["step"].apply(s, tile, s[tile].op.reduce_axis[0])
    own_row, own_column = s[tile].op.axis
    s[tile].reorder(outer_step, step, own_row, own_column)
    s[tile].unroll(step)
    s[tile].unroll(own_row)
    s[tile].vectorize(own_column)
    if cfg["hold"].val:
        held = s.cache_read(a, "local", [tile])
        s[held].compute_at(s[tile], outer_step)
        s[held].unroll(s[held].op.axis[0])
        s[held].vectorize(s[held].op.axis[1])
    panel = s.cache_read(b, "global", [tile])
    s[panel].compute_at(s[c], outer_column)
    s[panel].vectorize(s[panel].op.axis[1])
    return s, [a, b, c]


def own_kernel(build: Callable[..., Any], tensors: Tensors, target: Target) -> Any:
    """The operator as a network of its own."""
    inputs = tuple(
        relay.var(t.name, shape=[int(str(e)) for e in t.shape]) for t in tensors[:-1]
    )
    network = sterna.IRModule.from_expr(relay.Function(inputs, build(*inputs)))
    return relay.build(network, target=target)


def by_tune_tir(tensors: Tensors, target: Target, trials: int, folder: str) -> Any:
    """The fastest that tune_tir finds."""
    function = te.create_prim_func(tensors)
    found = ms.tune_tir(function, target, folder, trials)
    tuned = ms.tir_integration.compile_tir(found, function, target)
    assert tuned is not None, "something ran"
    return sterna.build(tuned.mod, target=target)


def by_template(args: Sequence[int], target: Target, trials: int, folder: str) -> Any:
    """The fastest that AutoTVM finds for the template of products."""
    task = autotvm.task.create("benchmarks/matmul", args=args, target=target)
    option = autotvm.measure_option("local", autotvm.LocalRunner(number=5, repeat=3))
    log = str(Path(folder) / "matmul.log")
    autotvm.XGBTuner(task).tune(trials, option, callbacks=[autotvm.callback.log_to_file(log)])
    with autotvm.apply_history_best(log), target:
        return sterna.build(*matmul_template(*args), target=target)


def share(own: Any, tuned: Any, tensors: Tensors) -> tuple[float, float]:
    """The seconds of our own kernel and of the tuned one, in turns."""
    device, rng = sterna.cpu(0), np.random.default_rng(0)
    arrays = [sterna.nd.array(rng.random([int(str(e)) for e in t.shape], "float32"))
              for t in tensors]
    executor = graph_executor.GraphModule(own["default"](device))
    for tensor, array in zip(tensors[:-1], arrays[:-1], strict=True):
        executor.set_input(tensor.name, array)
    executor.run()
    tuned(*arrays)
    np.testing.assert_allclose(arrays[-1].numpy(), executor.get_output(0).numpy(), 1e-4, 1e-5)
    first = executor.module.time_evaluator("run", device, number=3)
    second = tuned.time_evaluator(tuned.entry_name, device, number=3)
    times = [(first().mean, second(*arrays).mean) for _ in range(TURNS)]
    return median(t for t, _ in times), median(t for _, t in times)


def te_rows(trials: int, target: Target) -> list[Row]:
    """What each reaches of our own kernel's speed."""
    shape = 256, 256, 256
    loads: Mapping[str, tuple[Tensors, Callable[..., Any]]] = {
        "matmul 256 x 256 x 256": (matmul(*shape), relay.nn.matmul),
        "conv2d NHWC 28 x 28 x 64": (conv_nhwc(28, 64, 64), lambda x, w: relay.nn.conv2d(
            x, w, padding=1, data_layout="NHWC", kernel_layout="HWIO")),
        "conv2d NCHW 64 x 28 x 28": (conv_nchw(28, 64, 64), lambda x, w: relay.nn.conv2d(
            x, w, padding=1)),
        "softmax 512 x 1000": (softmax(512, 1000), relay.nn.softmax),
    }
    found = []
    for name, (tensors, operator) in loads.items():
        own = own_kernel(operator, tensors, target)
        ways: dict[str, Callable[[str], Any]] = {
            "meta_schedule": partial(by_tune_tir, tensors, target, trials)
        }
        if operator is relay.nn.matmul:
            ways["autotvm"] = partial(by_template, shape, target, trials)
        for way, tuned in ways.items():
            with tempfile.TemporaryDirectory() as folder:
                first, second = share(own, tuned(folder), tensors)
            told = f"{first * 1e3:.3f} / {second * 1e3:.3f} ms, {trials} trials at most"
            found.append(Row(f"{name}, {way}", first / second, "x", LEAST, False, told))
    return found
