"""Options of the whole test suite."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

os.environ.setdefault("STERNA_VERIFY_PASSES", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the texts that tests compare with"
    )
    parser.addoption(
        "--whole-million", action="store_true", help="call every path a million times for leaks"
    )
    parser.addoption(
        "--search-seconds", type=float, default=20.0,
        help="how long each test throws broken input at something, drawn anew in every run",
    )


@pytest.fixture
def search_seconds(request: pytest.FixtureRequest) -> float:
    """How long a test that draws broken input goes on."""
    seconds: float = request.config.getoption("--search-seconds")
    return seconds


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compares a text with golden/<name> beside the test, or writes it with --update-golden."""
    folder = Path(request.path).parent / "golden"

    def compare(name: str, text: str) -> None:
        path = folder / name
        if request.config.getoption("--update-golden"):
            folder.mkdir(exist_ok=True)
            path.write_text(text, "utf-8")
        assert path.exists(), f"{path} is missing; run pytest with --update-golden"
        assert text == path.read_text("utf-8")

    return compare
