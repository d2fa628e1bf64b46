"""The backend `sterna` of torch.compile, and PyTorch's own backend `tvm`."""

import subprocess
import sys
import tomllib
import warnings
from typing import Any

import pytest

from sterna.support.discovery import load_name
from tests.support import ROOT, clean_environment, require_module

require_module("torch")
import torch  # noqa: E402
from torch import nn  # noqa: E402

from sterna.contrib import torch_compile  # noqa: E402
from sterna.contrib.torch_compile import sterna as backend  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

QUICK = {"opt_level": 1}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x: Any) -> Any:
        return self.last(torch.relu(self.first(x)) * 2.0)


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def test_weights_are_constants_until_they_change() -> None:
    net = Net().eval()
    compiled = torch.compile(net, backend=backend, options=QUICK)
    x = torch.randn(2, 4)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), net(x))
        net.last.bias.add_(1.0)
        torch.testing.assert_close(compiled(x), net(x))
        longer = torch.randn(5, 8)[:, ::2]  # another shape, and not contiguous
        torch.testing.assert_close(compiled(longer), net(longer))


def test_one_program_over_symbols_serves_all_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Any] = []
    build = torch_compile._build_open

    def count(program: Any, options: Any) -> Any:
        built.append(build(program, options))
        return built[-1]

    monkeypatch.setattr(torch_compile, "_build_open", count)
    monkeypatch.delattr(torch_compile, "_build")
    net = Net()
    compiled = torch.compile(net, backend=backend, options=QUICK, dynamic=True)
    for rows in (2, 5, 7):
        x = torch.randn(rows, 4)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), net(x))
        given, same = x.clone().requires_grad_(), x.clone().requires_grad_()
        compiled(given).square().sum().backward()
        net(same).square().sum().backward()
        torch.testing.assert_close(given.grad, same.grad)
    assert [each.is_symbolic for each in built] == [True] * 3  # inference, forward, backward


def test_inputs_that_a_graph_writes_to_are_written_to() -> None:
    def step(x: Any, state: Any) -> Any:
        state.add_(x)
        return state * 2, None, x.shape[0]

    compiled = torch.compile(step, backend=backend, options=QUICK)
    state = torch.ones(3)
    made, nothing, count = compiled(torch.arange(3.0), state)
    torch.testing.assert_close(state, torch.tensor([1.0, 2.0, 3.0]))
    torch.testing.assert_close(made, state * 2)
    assert nothing is None and count == 3


def test_gradients() -> None:
    net, twin = Net(), Net()
    twin.load_state_dict(net.state_dict())
    options = {**QUICK, "fallback": False}
    compiled = torch.compile(net, backend=backend, options=options)
    x = torch.randn(5, 4)
    compiled(x).square().sum().backward()
    twin(x).square().sum().backward()
    for have, want in zip(net.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(have.grad, want.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("of_input", [True, False])
def test_views_at_open_places_keep_their_places(of_input: bool) -> None:
    def halves(x: Any) -> Any:
        y = x if of_input else x * 2
        return y[x.shape[0] // 2 :].t(), y.sum()

    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fast = torch.compile(halves, backend="sterna", dynamic=True)
        for rows in (6, 9):
            x = torch.arange(rows * 5.0).reshape(rows, 5).requires_grad_()
            made, want = fast(x)[0], halves(x)[0]
            assert torch.equal(made, want)
            factor = torch.arange(float(want.numel())).reshape(want.shape)
            pairs = [torch.autograd.grad((each * factor).sum(), x)[0] for each in (made, want)]
            assert torch.equal(*pairs)


@pytest.mark.parametrize("captures", [True, False])
def test_splits_at_places_that_data_decides(captures: bool) -> None:
    def weighted(x: Any, places: Any) -> Any:
        parts = torch.tensor_split(x, places, 0)
        return sum((part * (place + 1)).sum() for place, part in enumerate(parts))

    torch._dynamo.reset()
    x, places = torch.randn(5, 3, requires_grad=True), torch.tensor([1, 2, 3])
    patched = torch._dynamo.config.patch(capture_scalar_outputs=captures)
    with warnings.catch_warnings(), patched:
        warnings.simplefilter("ignore")
        made = torch.compile(weighted, backend="sterna")(x, places)
    torch.testing.assert_close(made, weighted(x, places))
    (gradient,) = torch.autograd.grad(made, x)
    assert gradient[:, 0].tolist() == [1, 2, 3, 4, 4]


def test_what_has_no_converter_runs_as_before() -> None:
    def values(x: Any) -> Any:
        return torch.linalg.eigvals(x).real + 1

    with pytest.warns(UserWarning, match=r"aten\.linalg_eig\..*test_torch_compile\.py"):
        made = torch.compile(values, backend=backend)(torch.eye(3))
    torch.testing.assert_close(made, torch.full((3,), 2.0))
    torch._dynamo.reset()
    strict = torch.compile(values, backend=backend, options={"fallback": False})
    with pytest.raises(Exception, match="linalg_eig"):
        strict(torch.eye(3))


class AroundEigenvalues(nn.Module):
    """Layers before and after an operator that has no converter."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        square = torch.tanh(self.first(x))
        values = torch.linalg.eigvals(square @ square.mT).abs()
        return self.last(torch.relu(values)) * 2.0


def test_parts_around_what_has_no_converter_are_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built, build = [], torch_compile._build

    def count(program: Any, options: Any) -> Any:
        built.append([step.target for step in program.steps])
        return build(program, options)

    monkeypatch.setattr(torch_compile, "_build", count)
    net, x = AroundEigenvalues().eval(), torch.randn(3, 4, 4)
    compiled = torch.compile(net, backend=backend, options=QUICK)
    with torch.no_grad(), pytest.warns(UserWarning, match=r"parts of a graph.*\n.*linalg_eig"):
        torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-4)
        assert ["aten.tanh.default" in part for part in built[-2:]] == [True, False]
        assert any("linear" in step for step in built[-1])
        net.last.weight.mul_(3.0)
        torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-4)
    with pytest.warns(UserWarning, match="parts of a graph"):
        compiled(x).sum().backward()
    found = net.first.weight.grad
    net.zero_grad()
    net(x).sum().backward()
    torch.testing.assert_close(found, net.first.weight.grad, rtol=1e-3, atol=1e-3)


def test_unknown_options_are_named() -> None:
    with pytest.raises(Exception, match=r"opt_level.*not 'speed'"):
        torch.compile(Net(), backend=backend, options={"speed": 1})(torch.randn(1, 4))


def test_the_backend_has_an_entry_point() -> None:
    with open(ROOT / "pyproject.toml", "rb") as file:
        points = tomllib.load(file)["project"]["entry-points"]["torch_dynamo_backends"]
    assert load_name(points["sterna"]) is backend


def test_the_backend_tvm_works_unchanged() -> None:
    program = (
        "import sterna.as_tvm; sterna.as_tvm.install()\n"
        "import torch\n"
        "net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()).eval()\n"
        "x = torch.randn(1, 3, 6, 6)\n"
        "with torch.no_grad():\n"
        "    made = torch.compile(net, backend='tvm')(x)\n"
        "    torch.testing.assert_close(made, net(x), rtol=1e-4, atol=1e-4)\n"
    )
    environment = clean_environment(PYTHONPATH=str(ROOT))
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], env=environment, check=True)


def test_a_graph_under_autocast_is_compiled_as_such() -> None:
    def product(x: Any) -> Any:
        return x @ x

    compiled = torch.compile(product, backend=backend, options=QUICK)
    x = torch.randn(4, 4)
    for is_on, kind in ((True, torch.bfloat16), (False, torch.float32)):
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_on):
            found = compiled(x)
            assert found.dtype == kind
            torch.testing.assert_close(found, product(x))


def test_factorisations_are_checked_in_training() -> None:
    def inverse(x: Any) -> Any:
        return torch.linalg.inv(x).sum()

    strict = {**QUICK, "fallback": False}
    compiled = torch.compile(inverse, backend=backend, options=strict)
    x = (3 * torch.eye(3) + torch.rand(3, 3)).requires_grad_()
    (found,) = torch.autograd.grad(compiled(x), x)
    torch.testing.assert_close(found, torch.autograd.grad(inverse(x), x)[0])
    with pytest.raises(ValueError, match=r"linalg\.inv: a matrix is singular"):
        compiled(torch.zeros(3, 3, requires_grad=True))


def test_state_of_an_optimiser_is_written_once_by_each_step() -> None:
    found = []
    for name in ("sterna", "eager"):
        torch._dynamo.reset()
        weight = torch.nn.Parameter(torch.full((2,), 0.1))
        optimiser = torch.optim.Adam([weight], lr=0.01, foreach=False)

        def step(gradient: Any, weight: Any = weight, optimiser: Any = optimiser) -> Any:
            weight.grad = gradient.clone()
            optimiser.step()
            return weight.detach().clone()

        compiled = torch.compile(step, backend=name)
        with torch.no_grad():
            results = [compiled(torch.tensor([1.0, -2.0])) for _ in range(2)]
        found.append([*results, *optimiser.state[weight].values()])
    torch.testing.assert_close(found[0], found[1])
