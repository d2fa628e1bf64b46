"""Kernels whose operators do not read all of their operands."""

import numpy as np

import sterna as tvm
from sterna import relay
from sterna.lowering.lower_kernel import lower_kernel
from sterna.schedule.kernel import Processor


def test_a_parameter_that_is_not_read_is_still_one() -> None:
    x, gamma, beta = (relay.var(name, shape=(4,)) for name in ("x", "gamma", "beta"))
    y = relay.nn.layer_norm(x, gamma, beta, scale=False)
    lowered = lower_kernel(relay.Function((x, gamma, beta), y), "f", Processor())
    assert lowered.arguments == 4
    function = tvm.build(lowered.function, target="llvm", name="f")
    given = [np.array(v, "float32") for v in ([1, 2, 3, 4], [9, 9, 9, 9], [0, 0, 0, 1])]
    result = np.empty(4, "float32")
    function(*given, result)
    want = (given[0] - 2.5) / np.sqrt(1.25 + 1e-5) + given[2]
    np.testing.assert_allclose(result, want, rtol=1e-5)
