"""Open batches run image by image, where each image is proved to be computed from itself alone."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sterna
from sterna.lowering.one_image import one_image
from sterna.relay.infer import infer
from sterna.relay.symbols import Symbols
from sterna.runtime.vm import VirtualMachine

relay: Any = sterna.relay
RNG = np.random.default_rng(0)
WEIGHT = RNG.standard_normal((8, 4, 3, 3)).astype("float32")


def conv(data: Any) -> Any:
    return relay.nn.conv2d(data, relay.const(WEIGHT), padding=(1, 1))


def network(*follow: Callable[[Any], Any]) -> tuple[Any, Any]:
    """A convolution of an open batch, and what follows it."""
    kind: Any = Symbols().opened(relay.TensorType((relay.Any("n"), 4, 6, 6), "float32"))
    x = relay.Var("x", kind)
    body = conv(x)
    for each in follow:
        body = each(body)
    made = relay.Function([x], body)
    infer(made)
    return made, kind.shape[0]


APART: dict[str, Callable[[Any], Any]] = {
    "elements": lambda y: relay.nn.relu(y + relay.const(np.ones((1, 8, 1, 1), "float32"))),
    "pool": lambda y: relay.nn.max_pool2d(y, pool_size=(2, 2), strides=(2, 2)),
    "parts": lambda y: relay.concatenate([y, relay.nn.softmax(y, axis=1)], axis=1),
    "heads": lambda y: relay.reshape(y, (-1, 4, 6, 6)),
    "padded": lambda y: relay.nn.pad(y, ((0, 0), (0, 0), (1, 1), (2, 2))),
    "turned": lambda y: relay.transpose(y, (0, 2, 3, 1)),
}
TOGETHER: dict[str, Callable[[Any], Any]] = {
    "flipped": lambda y: relay.reverse(y, axis=0),
    "mean": lambda y: y - relay.mean(y, axis=0, keepdims=True),
    "softmax": lambda y: relay.nn.softmax(y, axis=0),
    "summed": lambda y: relay.cumsum(y, axis=0),
    "joined": lambda y: relay.concatenate([y, y], axis=0),
    "padded": lambda y: relay.nn.pad(y, ((1, 0), (0, 0), (0, 0), (0, 0))),
    "result without images": lambda y: relay.sum(y, axis=(0, 1)),
    "moved": lambda y: relay.transpose(y, (1, 0, 2, 3)),
    "rows joined across images": lambda y: relay.reshape(y, (8, -1, 6, 6)),
}


@pytest.mark.parametrize("name", APART)
def test_images_apart(name: str) -> None:
    whole, count = network(APART[name])
    made = one_image(whole)
    assert made is not None and made.count is count
    kind: Any = made.block.params[0].checked_type
    assert kind.concrete_shape == (1, 4, 6, 6)


@pytest.mark.parametrize("name", TOGETHER)
def test_images_that_hang_together(name: str) -> None:
    assert one_image(network(TOGETHER[name])[0]) is None


def test_layers_of_one_row_run_side_by_side() -> None:
    x, w = relay.var("x", shape=(relay.Any("n"), 64)), relay.const(np.ones((32, 64), "float32"))
    kind = Symbols().opened(x.type_annotation)
    assert one_image(relay.Function([p := relay.Var("x", kind)], relay.nn.dense(p, w))) is None


def test_an_open_batch_gives_what_closed_ones_give() -> None:
    x, z = relay.var("x", shape=(relay.Any("n"), 4, 6, 6)), relay.var("z", shape=(1, 8, 1, 1))
    heads = relay.reshape(relay.nn.relu(conv(x) + z), (-1, 6, 12))
    scores = relay.nn.softmax(relay.nn.batch_matmul(heads, heads))
    module = sterna.IRModule.from_expr(relay.Function([x, z], relay.Tuple([scores, x])))
    machine = VirtualMachine(relay.vm.compile(module, "llvm"), sterna.cpu())
    offset = RNG.standard_normal((1, 8, 1, 1)).astype("float32")
    for count in (0, 1, 3):
        data = RNG.standard_normal((count, 4, 6, 6)).astype("float32")
        wide = np.pad(data, ((0, 0), (0, 0), (1, 1), (1, 1)))
        seen = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), axis=(2, 3))
        made = np.maximum(np.einsum("nihwyx,oiyx->nohw", seen, WEIGHT) + offset, 0)
        rows = made.reshape(-1, 6, 12)
        exps = np.exp((product := rows @ rows.swapaxes(1, 2)) - product.max(-1, keepdims=True,
                                                                            initial=-1e9))
        found, same = machine.run(data, offset)
        wanted = exps / exps.sum(-1, keepdims=True)
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-3, atol=1e-4)
        np.testing.assert_array_equal(same.numpy(), data)
