"""Eager quantised modules, traced: they become integers, and give what PyTorch's kernels give."""

from typing import Any

import numpy as np
import pytest

from tests.support import require_module

require_module("torch")
import torch  # noqa: E402
import torch.ao.quantization as tq  # noqa: E402

from sterna.frontend.torch.script_inputs import script_infos  # noqa: E402
from sterna.relay.expr import Call, Constant  # noqa: E402
from sterna.relay.passes.integer_arithmetic import integer_arithmetic  # noqa: E402
from sterna.relay.traverse import post_order  # noqa: E402
from sterna.support.errors import OpNotImplemented  # noqa: E402
from sterna.testing import require  # noqa: E402
from tests.frontend.torch_support import imported, results  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

ENGINE = "qnnpack"


class Net(torch.nn.Module):
    """Convolutions, a sum, pools and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant = tq.QuantStub(), tq.DeQuantStub()
        self.first, self.relu = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU()
        self.second, self.pool = torch.nn.Conv2d(8, 8, 1), torch.nn.MaxPool2d(2)
        self.sum, self.mean = torch.ao.nn.quantized.FloatFunctional(), torch.nn.AdaptiveAvgPool2d(4)
        self.head = torch.nn.Linear(128, 5)

    def forward(self, x: Any) -> Any:
        x = self.relu(self.first(self.quant(x)))
        x = self.mean(self.pool(self.sum.add(x, self.second(x))))
        return self.dequant(self.head(x.flatten(1)))


def quantised(model: Any, x: Any) -> Any:
    """A module with integers for weights, calibrated by one input."""
    has_it = ENGINE in torch.backends.quantized.supported_engines
    require(None if has_it else f"this PyTorch has no {ENGINE}")
    torch.backends.quantized.engine = ENGINE
    model.eval().qconfig = tq.get_default_qconfig(ENGINE)
    prepared = tq.prepare(model)
    prepared(x)
    return tq.convert(prepared)


def test_a_quantised_module_becomes_integers() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 16, 16)
    net = Net().eval()
    model = quantised(tq.fuse_modules(net, [["first", "relu"]]), x)
    module = imported(torch.jit.trace(model, x), (x,))
    step = model.head.scale
    found, wanted = results(module, x)[0], model(x).numpy()
    # where PyTorch rounds a layer otherwise, as on x86-64, the head sees some steps of it
    assert np.abs(found - wanted).max() <= step * 2.01
    whole = integer_arithmetic(module["main"])
    calls = [part for part in post_order(whole.body) if isinstance(part, Call)]
    names = {getattr(call.op, "name", "") for call in calls}
    assert {"qnn.conv2d", "qnn.dense", "qnn.scaled_sum"} <= names
    assert not {"nn.conv2d", "nn.dense"} & names
    biases = [call.args[1] for call in calls if getattr(call.op, "name", "") == "add"]
    assert all(isinstance(bias, Constant) and bias.data.dtype == "int32" for bias in biases)


def test_what_is_lacking_is_named() -> None:
    class Rest(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.quant, self.dequant = tq.QuantStub(), tq.DeQuantStub()

        def forward(self, x: Any) -> Any:
            return self.dequant(torch.sort(self.quant(x))[0])

    x = torch.randn(4)
    traced = torch.jit.trace(quantised(Rest(), x), x)
    assert len(script_infos(traced, (x,))) == 1
    with pytest.raises(OpNotImplemented, match=r"aten::sort of quantised tensors"):
        imported(traced, (x,))
