"""What tests of operators share."""

import importlib
from typing import Any

import pytest

from tests.support import require_module


@pytest.fixture(scope="session")
def torch() -> Any:
    """PyTorch, whose operators references are held against."""
    require_module("torch")
    return importlib.import_module("torch")
