"""Sections and symbols of linked programs."""

import subprocess
from pathlib import Path

import pytest

from sterna.micro.elf import read_program
from tests.support import require_program

SOURCE = """
static const char kept[1000] = {1};
char first[200] = {1}, zero[5000];
int main(void) { return kept[first[zero[3]]]; }
"""


@pytest.mark.parametrize("compiler", ["gcc", "arm-none-eabi-gcc"])
def test_a_program(compiler: str, tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text(SOURCE)
    command = [require_program(compiler), "-O0", "-nostartfiles", "-nostdlib", "-no-pie", "a.c"]
    subprocess.run([*command, "-Wl,-e,main", "-o", "a"], cwd=tmp_path, check=True)
    made = read_program(tmp_path / "a")
    sizes = {"kept": 1000, "first": 200, "zero": 5000}
    assert {name: made.symbols[name] for name in sizes} == sizes
    assert 1200 < made.stored_bytes < 2400 and 5200 <= made.variable_bytes < 5400
    data = (tmp_path / "a").read_bytes()
    for size in range(6, len(data) // 2, 97):
        (tmp_path / "b").write_bytes(data[:size])
        with pytest.raises(ValueError, match="is no whole program"):
            read_program(tmp_path / "b")


def test_what_is_no_program(tmp_path: Path) -> None:
    for content in (b"", b"terns", b"\x7fELF\x01", b"\x7fELF\x03\x01", b"\x7fELF\x01\x02"):
        (tmp_path / "program").write_bytes(content)
        with pytest.raises(ValueError, match="is no program"):
            read_program(tmp_path / "program")
