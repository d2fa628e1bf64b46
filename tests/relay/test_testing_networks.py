"""Networks of relay.testing have the sizes that are known of them, and small ones run."""

import math

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.relay import testing
from sterna.relay.analysis import get_total_mac_number


@pytest.mark.parametrize(
    ("name", "options", "weights"),
    [
        ("vgg", {"num_layers": 16}, 138_357_544),
        ("inception_v3", {}, 23_869_000),
        ("densenet", {"batch_size": 1}, 8_062_504),
        ("dqn", {"num_actions": 4}, 1_686_180),
    ],
)
def test_sizes(name: str, options: dict[str, int], weights: int) -> None:
    mod = tvm.IRModule.from_expr(getattr(testing, name).get_net(**options))
    main = testing.run_infer_type(mod["main"])
    shapes = [param.checked_type.concrete_shape for param in main.params[1:]]
    assert main.params[0].name_hint == "data" and sum(map(math.prod, shapes)) == weights
    assert get_total_mac_number(main) > 0


def test_small_networks_run() -> None:
    for mod, params in (
        testing.dcgan.get_workload(1, random_len=8, oshape=(3, 16, 16), ngf=4),
        testing.dqn.get_workload(1, num_actions=3, image_shape=(1, 36, 36)),
    ):
        built = relay.build(mod, "llvm", params=params)
        runner = tvm.contrib.graph_executor.GraphModule(built["default"](tvm.cpu()))
        runner.run(data=np.ones(mod["main"].params[0].checked_type.concrete_shape, "float32"))
        assert np.isfinite(runner.get_output(0).numpy()).all()


def test_sizes_that_are_none_are_named() -> None:
    with pytest.raises(ValueError, match="a VGG has 11, 13, 16, 19 layers, not 12"):
        testing.vgg.get_workload(num_layers=12)
    with pytest.raises(ValueError, match="a DenseNet is 121"):
        testing.densenet.get_workload(100)
    with pytest.raises(ValueError, match="4 times a power of two"):
        testing.dcgan.get_workload(oshape=(3, 48, 48))
