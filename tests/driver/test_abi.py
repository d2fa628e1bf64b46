"""A target's calling convention reaches the code that is made for it."""

import struct
import subprocess
import sys
from pathlib import Path

import pytest

import sterna as tvm
from sterna import te
from sterna.driver import OperatorModule
from tests.support import require_module, require_program

RISCV = "llvm -mtriple=riscv64-unknown-linux-gnu"
EMBEDDED = "llvm -mtriple=riscv32-unknown-elf"
# The bits of an ELF file's flags that name the registers for floating-point numbers.
FLOAT_ABI, SOFT, SINGLE, DOUBLE = 6, 0, 2, 4


def build(target: str) -> OperatorModule:
    x, scale = te.placeholder((4,), name="x"), te.var("scale", "float32")
    y = te.compute((4,), lambda i: x[i] * scale, name="y")
    return tvm.build(te.create_schedule(y.op), [x, scale, y], target=target, name="f")


def elf_flags(path: Path) -> int:
    content = path.read_bytes()
    (flags,) = struct.unpack_from("<I", content, 48 if content[4] == 2 else 36)
    return int(flags)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (f"{RISCV} -mcpu=sifive-u74", DOUBLE),
        (f"{RISCV} -mcpu=sifive-u74 -mabi=lp64d", DOUBLE),
        (f"{RISCV} -mcpu=sifive-u74 -mabi=lp64f", SINGLE),
        (f"{RISCV} -mcpu=sifive-u74 -mabi=lp64", SOFT),
        (f"{RISCV} -mcpu=generic-rv64", SOFT),
        (f"{RISCV} -mcpu=generic-rv64 -mattr=+d", DOUBLE),
        (f"{EMBEDDED} -mcpu=sifive-e76 -mabi=ilp32f", SINGLE),
        (f"{EMBEDDED} -mcpu=sifive-e76 -mabi=ilp32", SOFT),
        (f"{EMBEDDED} -mcpu=sifive-e31", SOFT),
    ],
)
def test_riscv_objects_say_their_abi(target: str, expected: int, tmp_path: Path) -> None:
    build(target).save(tmp_path / "f.o")
    assert elf_flags(tmp_path / "f.o") & FLOAT_ABI == expected


@pytest.mark.parametrize(
    ("target", "hard"),
    [
        ("-mtriple=armv7a-linux-gnueabihf -mcpu=cortex-a9", True),
        ("-mtriple=armv7a-linux-gnueabihf -mcpu=cortex-a9 -mfloat-abi=softfp", False),
        ("-mtriple=armv7a-linux-gnueabi -mcpu=cortex-a9", False),
        ("-mtriple=armv7a-linux-gnueabi -mcpu=cortex-a9 -mfloat-abi=hard", True),
        ("-mcpu=cortex-m4 -mfloat-abi=hard", True),
        ("-mcpu=cortex-m4 -mfloat-abi=soft", False),
    ],
)
def test_arm_objects_say_how_floats_are_passed(target: str, hard: bool, tmp_path: Path) -> None:
    readelf = require_program("readelf")
    build(f"llvm {target}").save(tmp_path / "f.o")
    done = subprocess.run(
        [readelf, "-A", tmp_path / "f.o"], capture_output=True, text=True, check=True
    )
    assert ("Tag_ABI_VFP_args: VFP registers" in done.stdout) == hard


def test_soft_floats_use_no_floating_point_instructions() -> None:
    text = build("llvm -mcpu=cortex-m4 -mfloat-abi=soft").get_source("asm")
    assert "__aeabi_fmul" in text and "vmul" not in text
    text = build("llvm -mcpu=cortex-m4 -mfloat-abi=softfp").get_source("asm")
    assert "vmul" in text


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (f"{RISCV} -mcpu=sifive-u74 -mabi=lp64x", ["'lp64x'", "ABI (-mabi) of riscv64", "lp64d"]),
        (f"{RISCV} -mcpu=sifive-u74 -mabi=ilp32", ["'ilp32'", "riscv64"]),
        (f"{RISCV} -mcpu=generic-rv64 -mabi=lp64d", ["-mabi=lp64d", "no feature 'd'", "+d"]),
        ("llvm -mtriple=x86_64-linux-gnu -mabi=ms", ["-mabi=ms", "no choice of ABI for x86"]),
        (f"{RISCV} -mfloat-abi=hard", ["-mfloat-abi=hard", "32-bit ARM", "riscv64", "-mabi"]),
        ("llvm -mtriple=armv7-linux-gnu -mfloat-abi=hard", ["eabi", "'armv7-unknown-linux-gnu'"]),
    ],
)
def test_impossible_choices_are_refused(target: str, words: list[str]) -> None:
    with pytest.raises(ValueError) as caught:
        build(target)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("target", "system", "fits"),
    [
        (f"{RISCV} -mcpu=sifive-u74 -mabi=lp64d", "riscv64-linux-musl", True),
        (f"{RISCV} -mcpu=sifive-u74 -mabi=lp64", "riscv64-linux-musl", False),
    ],
)
def test_programs_link_with_code_of_their_abi(
    target: str, system: str, fits: bool, tmp_path: Path
) -> None:
    require_module("ziglang")
    build(target).save(tmp_path / "f.o")
    (tmp_path / "main.c").write_text("int __tvm_ffi_f(void);\nint main(void) { __tvm_ffi_f(); }\n")
    command = [sys.executable, "-m", "ziglang", "cc", "-target", system, "main.c", "f.o"]
    done = subprocess.run(
        [*command, "-o", "main"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode == 0) == fits, done.stderr
    assert fits or "floating-point ABI" in done.stderr
