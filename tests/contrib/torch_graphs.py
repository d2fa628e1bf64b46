"""What tests of the backend `sterna` of torch.compile share; they ask for torch themselves."""

from typing import Any

import pytest
import torch

from sterna.contrib.torch_compile import sterna as backend


@pytest.fixture(autouse=True)
def fresh() -> None:
    """Nothing that an earlier test compiled or drew."""
    torch._dynamo.reset()
    torch.manual_seed(0)


def compiled(function: Any, dynamic: bool | None = None, fallback: bool = False) -> Any:
    """It by the backend, whole unless fallback lets PyTorch run parts."""
    options = {"opt_level": 1, "fallback": fallback}
    return torch.compile(function, backend=backend, options=options, dynamic=dynamic)
