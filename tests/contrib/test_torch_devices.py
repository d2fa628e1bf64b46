"""Where graphs of torch.compile are computed, told by tensors that hold no data."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch._subclasses import FakeTensorMode  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from sterna.contrib.torch_devices import home_of, target_at  # noqa: E402
from sterna.frontend.torch.read_exported import read_fx  # noqa: E402
from sterna.support.errors import OpNotImplemented  # noqa: E402

HOST, FIRST, SECOND = torch.device("cpu"), torch.device("cuda:0"), torch.device("cuda:1")


def held(*places: str) -> list[Any]:
    with FakeTensorMode():
        return [torch.empty(2, 3, device=place) for place in places]


def test_a_graph_is_at_home_where_its_tensors_are() -> None:
    assert home_of(held("cpu", "cpu"), [], "native") == HOST
    assert home_of(held("cpu", "cuda:1"), ["cuda:1", "cpu"], "native") == SECOND
    assert home_of([3, *held("cpu")], ["cuda:0", ""], "native") == FIRST


def test_a_target_that_is_named_decides() -> None:
    assert home_of(held("cuda:0"), ["cuda:0"], "llvm") == HOST
    assert home_of(held("cuda:0"), ["cuda:0"], "cuda -arch=sm_80") == FIRST
    assert target_at(FIRST, "cuda -arch=sm_80") == "cuda -arch=sm_80"


def test_two_gpus_are_refused_by_name() -> None:
    with pytest.raises(OpNotImplemented, match="on cuda:0 and cuda:1; move them to one GPU"):
        home_of(held("cuda:0", "cuda:1"), [], "native")


def test_what_pytorch_allows_float32_on_tensor_cores() -> None:
    assert (target_at(HOST, "native"), target_at(FIRST, "native")) == ("native", "cuda")
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        assert target_at(FIRST, "native") == "cuda -tf32=1"
    finally:
        torch.set_float32_matmul_precision(before)


def test_a_record_tells_where_results_belong() -> None:
    def f(x: Any, scale: Any) -> Any:
        y = x * scale
        return y, y.sum().cpu(), torch.arange(3, device=x.device), scale + 1

    with FakeTensorMode():
        given = torch.empty(2, 3, device="cuda:0"), torch.empty((), device="cpu")
        made = make_fx(f, tracing_mode="real")(*given)
    outputs = read_fx(made).outputs
    assert [each.device for each in outputs] == ["cuda:0", "cpu", "cuda:0", "cpu"]
