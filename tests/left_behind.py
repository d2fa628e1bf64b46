"""A pytest plugin: no process outlives the tests that started it, whatever ends them.

All that tests start carries a mark in its environment. Once they are over, or the process that runs
them is killed, a guardian ends whatever carries it.
"""

import os
import subprocess
import sys

import pytest

from tests import guardian

MARK = "STERNA_STARTED_BY_TESTS_OF"
GUARDIAN = pytest.StashKey[subprocess.Popen[bytes]]()


def pytest_configure(config: pytest.Config) -> None:
    """Mark what is started from here on, and have it watched."""
    if sys.platform != "linux":
        return
    os.environ[MARK] = str(os.getpid())
    command = [sys.executable, "-I", "-S", guardian.__file__, f"{MARK}={os.getpid()}"]
    config.stash[GUARDIAN] = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
    )


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """End what is left: what has no mark as well, if nothing was between."""
    watching = config.stash.get(GUARDIAN, None)
    if watching is not None:
        guardian.end(lambda: guardian.descendants(os.getpid()) - {watching.pid})
        watching.communicate()  # its input ends, and it with what it watches
