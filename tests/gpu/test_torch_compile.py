"""torch.compile of programs whose tensors are on a GPU, held against eager mode."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest

from sterna.testing import requires_cuda

torch = pytest.importorskip("torch")

from sterna.contrib.torch_compile import sterna as backend  # noqa: E402

pytestmark = [*requires_cuda.marks(), pytest.mark.filterwarnings("ignore")]


@pytest.fixture(autouse=True)
def _compiled_anew() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def close(got: Any, want: Any, within: float = 1e-4) -> None:
    assert got.device == want.device and got.dtype == want.dtype and got.shape == want.shape
    torch.testing.assert_close(got, want, rtol=within, atol=within)


def small_net() -> Any:
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.BatchNorm2d(16), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(256, 10),
    ).cuda().eval()


def compiled(f: Any, **options: Any) -> Callable[..., Any]:
    made: Callable[..., Any] = torch.compile(f, backend=backend, fullgraph=True, **options)
    return made


def test_results_are_where_eager_mode_has_them() -> None:
    net, x = small_net(), torch.randn(2, 3, 16, 16, device="cuda")
    with torch.no_grad(), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        got = compiled(net)(x)
    close(got, net(x))
    assert not [each for each in seen if "as PyTorch runs" in str(each.message)]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int32", "int64", "bool"])
def test_every_type_of_elements_comes_back(dtype: str) -> None:
    kind = getattr(torch, dtype)
    x = (torch.randn(5, 33, device="cuda") * 4).to(kind)

    def f(x: Any) -> Any:
        return x.flip(0), (x == x.flip(1)).any(1), x.to(torch.float32).sum(0)

    for got, want in zip(compiled(f)(x), f(x), strict=True):
        close(got, want)


def test_tensors_of_both_places() -> None:
    def f(x: Any, scale: Any, rows: Any) -> Any:
        y = x * scale + rows.to(x.device)
        return y, y.sum().cpu(), torch.arange(4, device=x.device) + y.shape[0], rows + 1

    given = torch.randn(3, 4, device="cuda"), torch.tensor(2.5), torch.randn(3, 4)
    for got, want in zip(compiled(f)(*given), f(*given), strict=True):
        close(got, want)


def test_what_reads_no_tensor() -> None:
    def f() -> Any:
        return torch.linspace(0, 1, 7, device="cuda") * 2

    close(compiled(f)(), f())


def test_inputs_are_written_to() -> None:
    def f(x: Any) -> Any:
        x[1:].mul_(2)
        return x.sum(0)

    x = torch.randn(4, 5, device="cuda")
    twin = x.clone()
    close(compiled(f)(x), f(twin))
    close(x, twin)


def test_strides_are_those_of_eager_mode() -> None:
    net = small_net().to(memory_format=torch.channels_last)[:3]
    x = torch.randn(2, 3, 16, 16, device="cuda").to(memory_format=torch.channels_last)
    with torch.no_grad():
        got, want = compiled(net)(x), net(x)
    close(got, want)
    assert got.stride() == want.stride()


def test_a_stream_of_the_program_is_kept_to() -> None:
    net, side = small_net(), torch.cuda.Stream()
    fast = compiled(net)
    xs = [torch.randn(8, 3, 64, 64, device="cuda") for _ in range(8)]
    with torch.no_grad():
        want = [net(x) for x in xs]
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            got = [fast(x * 1) for x in xs]
        side.synchronize()
    for one, other in zip(got, want, strict=True):
        close(one, other)


def test_open_extents() -> None:
    layers = torch.nn.Linear(24, 32), torch.nn.GELU(), torch.nn.LayerNorm(32)
    net = torch.nn.Sequential(*layers).cuda().eval()
    fast = compiled(net, dynamic=True)
    with torch.no_grad():
        for rows in (3, 7, 64, 7, 1000, 7, 7, 7, 7):
            x = torch.randn(rows, 24, device="cuda")
            close(fast(x), net(x))


class Block(torch.nn.Module):  # type: ignore[misc,name-defined]
    """A layer of a transformer."""

    def __init__(self, is_causal: bool) -> None:
        super().__init__()
        self.norm, self.qkv = torch.nn.LayerNorm(64), torch.nn.Linear(64, 192)
        self.out, self.is_causal = torch.nn.Linear(64, 64), is_causal

    def forward(self, x: Any) -> Any:
        parts = self.qkv(self.norm(x)).unflatten(-1, (3, 4, 16)).permute(2, 0, 3, 1, 4)
        made = torch.nn.functional.scaled_dot_product_attention(*parts, is_causal=self.is_causal)
        return x + self.out(made.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("is_causal", [False, True])
def test_attention(is_causal: bool) -> None:
    block, x = Block(is_causal).cuda().eval(), torch.randn(2, 40, 64, device="cuda")
    with torch.no_grad():
        close(compiled(block)(x), block(x))


@pytest.mark.parametrize(
    "make", [small_net, lambda: Block(True).cuda()], ids=["images", "attention"]
)
def test_training(make: Callable[[], Any]) -> None:
    net = make().train()
    twin = make().train()
    twin.load_state_dict(net.state_dict())
    shape = (2, 3, 16, 16) if isinstance(net, torch.nn.Sequential) else (2, 40, 64)
    fast = compiled(net)
    ours, theirs = (torch.optim.SGD(each.parameters(), lr=0.05) for each in (net, twin))
    for _ in range(3):
        x = torch.randn(shape, device="cuda")
        for run, steps in ((fast, ours), (twin, theirs)):
            steps.zero_grad()
            run(x).square().mean().backward()
            steps.step()
    for one, other in zip(net.state_dict().values(), twin.state_dict().values(), strict=True):
        close(one, other, 2e-3)


def test_autocast() -> None:
    net, x = small_net(), torch.randn(2, 3, 16, 16, device="cuda")
    fast = compiled(net)
    with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
        close(fast(x), net(x), 3e-2)


def test_weights_that_change() -> None:
    net, x = small_net(), torch.randn(2, 3, 16, 16, device="cuda")
    fast = compiled(net)
    with torch.no_grad():
        close(fast(x), net(x))
        net[0].weight.mul_(2)
        close(fast(x), net(x))
