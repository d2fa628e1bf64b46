"""torch.compile(backend="sterna") of what torch.export does not record, beside eager PyTorch."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest

from sterna.support.errors import OpNotImplemented
from tests.support import require_module

require_module("torch")
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from sterna.contrib.torch_compile import sterna as backend  # noqa: E402


def _wave(x: Any) -> Any:
    return (x.sin() ** 2).sum()


def _vjp(x: Any) -> Any:
    made, pull = torch.func.vjp(lambda y: y.tanh() * 3, x)
    return made, pull(x)[0]


def _gradient_inside(x: Any) -> Any:
    with torch.enable_grad():
        own = x.detach().requires_grad_()
        (made,) = torch.autograd.grad((own**2).sum(), own)
    return made + 1


def _autocast_inside(x: Any) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        made = x @ x.t()
    return made.float() + 1, made


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "grad": lambda x: torch.func.grad(_wave)(x) * 2,
    "vmap": lambda x: torch.func.vmap(lambda row: (torch.ones(5, 4) @ row).relu())(x),
    "jvp": lambda x: torch.func.jvp(lambda y: y.exp() * y, (x,), (x,)),
    "vjp": _vjp,
    "jacrev": lambda x: torch.func.jacrev(lambda y: y**3)(x[0]) + 1,
    "hessian": lambda x: torch.func.hessian(lambda y: (y**3).sum())(x[0]),
    "vmap of grad": lambda x: torch.func.vmap(torch.func.grad(_wave))(x),
    "autograd.grad": _gradient_inside,
    "autocast inside": _autocast_inside,
    "checkpoint": lambda x: checkpoint(lambda y: y.sin().relu(), x, use_reentrant=False),
}


def same(made: Any, wanted: Any) -> None:
    """Results with the same values, types and strides."""
    every = zip(*[each if isinstance(each, tuple) else (each,) for each in (made, wanted)],
                strict=True)
    for got, right in every:
        torch.testing.assert_close(got, right, rtol=1e-3, atol=1e-4, check_stride=True)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_run_as_in_eager_mode(name: str) -> None:
    torch._dynamo.reset()
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        wanted = PROGRAMS[name](x)
        fast = torch.compile(PROGRAMS[name], backend=backend)
        same(fast(x), wanted)
        same(torch.func.grad(_wave)(x), x.sin() * x.cos() * 2)  # no transform is left open


def test_transforms_are_compiled_and_not_left_to_pytorch() -> None:
    torch._dynamo.reset()
    x = torch.linspace(-1, 1, 12)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.filterwarnings("error", message=".*as PyTorch runs.*")
        fast = torch.compile(lambda y: torch.func.grad(_wave)(y), backend=backend)
        same(fast(x), 2 * x.sin() * x.cos())


def test_subclasses_of_tensors_stay_what_they_are() -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    torch._dynamo.reset()
    x = TwoTensor(torch.ones(3), torch.zeros(3))
    made = torch.compile(lambda y: y * 2 + 1, backend=backend)(x)
    assert isinstance(made, TwoTensor)
    same((made.a, made.b), (torch.full((3,), 3.0), torch.ones(3)))


def test_tensors_without_memory_are_left_to_pytorch() -> None:
    torch._dynamo.reset()
    x = torch.empty(3, device="meta")
    with pytest.warns(UserWarning, match="its tensors are on the device meta"):
        assert torch.compile(lambda y: y * 2, backend=backend)(x).is_meta
    torch._dynamo.reset()
    strict = torch.compile(lambda y: y * 2, backend="sterna", options={"fallback": False})
    with pytest.raises(Exception, match="a graph cannot run compiled") as caught:
        strict(x)
    assert isinstance(getattr(caught.value, "inner_exception", caught.value), OpNotImplemented)


@pytest.mark.parametrize("trains", [False, True])
def test_results_lie_as_in_eager_mode(trains: bool) -> None:
    torch._dynamo.reset()
    last: Any = torch.channels_last
    net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU()).to(memory_format=last)
    x = torch.randn(2, 3, 6, 5).contiguous(memory_format=last)
    with torch.set_grad_enabled(trains):
        fast, wanted = torch.compile(net, backend=backend), net(x)
        assert wanted.is_contiguous(memory_format=last)
        same(fast(x), wanted)
        same(fast(x), wanted)
        if trains:
            fast(x).sum().backward()
            assert net[0].weight.grad is not None


def test_open_extents_keep_the_order_of_axes() -> None:
    torch._dynamo.reset()
    fast = torch.compile(lambda y: y.relu() + 1, backend=backend, dynamic=True)
    for count in (2, 3, 5, 2):
        x = torch.randn(count, 3, 4, 4).contiguous(memory_format=torch.channels_last)
        same(fast(x), x.relu() + 1)
