"""Processes that tests start end with them, however those end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support import ROOT

# A process of another session, whose parent has ended.
TEST = """
import os, signal, subprocess, sys

def test_it():
    start = "import subprocess; subprocess.Popen(['sleep', '{seconds}'], start_new_session=True)"
    subprocess.run([sys.executable, "-c", start], check=True)
    {last}
"""


def sleepers(seconds: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:2] == [b"sleep", seconds.encode()]:
            found.append(int(path.parent.name))
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize("last", ["", "assert False", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_none_is_left(tmp_path: Path, last: str) -> None:
    seconds = f"{10**6 + os.getpid()}.{len(last)}"
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["tests.left_behind"]\n')
    (tmp_path / "test_it.py").write_text(TEST.format(seconds=seconds, last=last))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, check=False,
    )
    assert done.returncode == {"": 0, "assert False": 1}.get(last, -signal.SIGKILL), done.stdout
    end = time.monotonic() + 20
    while (left := sleepers(seconds)) and time.monotonic() < end:
        time.sleep(0.05)
    for process in left:
        os.kill(process, signal.SIGKILL)
    assert not left
