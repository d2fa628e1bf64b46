"""Users' programs run as they are."""

import subprocess
import sys
from pathlib import Path

import pytest

from sterna.testing import require
from tests.support import SHARED

FOLDER = SHARED / "acceptance"


def find_program(number: str) -> Path:
    """The program with this number."""
    require(None if FOLDER.is_dir() else f"the programs are not there: {FOLDER}")
    (program,) = FOLDER.glob(f"{number}_*.py")
    return program


def run(command: list[str], folder: Path) -> list[str]:
    """The lines that a program prints; it must succeed."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()


@pytest.mark.parametrize("number", ["01", "02", "03", "04", "05", "07", "08", "09", "12", "17"])
def test_program(number: str, tmp_path: Path) -> None:
    assert run([sys.executable, str(find_program(number))], tmp_path)[-1] == "ok"


def test_a_network_from_a_file(tmp_path: Path) -> None:
    program = find_program("06")
    writer = SHARED / "bench" / "nets.py"
    subprocess.run([sys.executable, str(writer), str(tmp_path), "resnet18"], check=True)
    lines = run([sys.executable, str(program), str(tmp_path / "resnet18.onnx")], tmp_path)
    assert lines[-1] == "ok"
