"""What machine a file is for: read from the file, whatever the file says."""

import io
import random
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sterna as tvm
from sterna import te
from sterna.runtime.module import this_architecture
from sterna.support import cross
from sterna.support.architecture import (
    Architecture,
    architecture_of,
    architectures_of,
    require_architecture,
)

# What LLVM's objects for a triple are.
OBJECTS = {
    "x86_64-linux-gnu": Architecture("elf", "x86", 64),
    "i686-linux-gnu": Architecture("elf", "x86", 32),
    "aarch64-linux-gnu": Architecture("elf", "aarch64", 64),
    "armv7l-linux-gnueabihf": Architecture("elf", "arm", 32, True, "hard"),
    "armv7l-linux-gnueabi": Architecture("elf", "arm", 32, True, "soft"),
    "riscv64-linux-gnu": Architecture("elf", "riscv", 64, True, "double"),
    "riscv32-unknown-elf": Architecture("elf", "riscv", 32, True, "soft"),
    "riscv32-unknown-elf -mattr=+f -mabi=ilp32f": Architecture("elf", "riscv", 32, True, "single"),
    "powerpc64le-linux-gnu": Architecture("elf", "powerpc", 64),
    "hexagon-unknown-elf": Architecture("elf", "hexagon", 32),
    "wasm32-unknown-unknown": Architecture("wasm", "wasm", 32),
    "aarch64-apple-macos": Architecture("macho", "aarch64", 64),
    "x86_64-apple-macos": Architecture("macho", "x86", 64),
    "x86_64-windows-gnu": Architecture("coff", "x86", 64),
    "aarch64-windows-gnu": Architecture("coff", "aarch64", 64),
}


def object_for(triple: str, folder: Path) -> Path:
    """An object file with one function."""
    a = te.placeholder((4,), name="a")
    b = te.compute((4,), lambda i: a[i] + 1.0, name="b")
    built = tvm.build(te.create_schedule(b.op), [a, b], target=f"llvm -mtriple={triple}")
    path = folder / "made.o"
    built.save(path)
    return path


@pytest.mark.parametrize("triple", OBJECTS)
def test_objects(triple: str, tmp_path: Path) -> None:
    path, want = object_for(triple, tmp_path), OBJECTS[triple]
    assert architecture_of(path) == want
    if want.runs_on(this_architecture()):
        return
    with pytest.raises(ValueError, match=r"made\.o': it is built for .*, and this machine is") as e:
        tvm.runtime.load_module(path)
    assert str(want) in str(e.value) and str(this_architecture()) in str(e.value)
    assert "run it " in str(e.value)


def test_what_runs_here_is_what_this_process_is() -> None:
    here = this_architecture()
    assert here.runs_on(here) and here.endianness == "little"
    machine = cross.Machine.here()
    assert machine is not None and machine.processor.startswith(here.processor)


def test_words() -> None:
    assert str(OBJECTS["armv7l-linux-gnueabihf"]) == "32-bit ARM (hard float, ELF)"
    assert str(OBJECTS["wasm32-unknown-unknown"]) == "WebAssembly"
    assert str(Architecture("elf", "arm", 32, False)) == "32-bit ARM (big-endian, ELF)"
    hard, soft = OBJECTS["armv7l-linux-gnueabihf"], OBJECTS["armv7l-linux-gnueabi"]
    assert not hard.runs_on(soft) and hard.runs_on(Architecture("elf", "arm", 32))


def _ar(*members: bytes) -> bytes:
    parts = [b"!<arch>\n"]
    for place, member in enumerate(members):
        header = f"{place}.o/".ljust(16) + "0".ljust(12) + "0".ljust(6) * 2 + "644".ljust(8)
        parts += [header.encode(), str(len(member)).ljust(10).encode(), b"`\n", member]
        parts += [b"\n"] * (len(member) % 2)
    return b"".join(parts)


def test_archives(tmp_path: Path) -> None:
    arm = object_for("aarch64-linux-gnu", tmp_path).read_bytes()
    intel = object_for("x86_64-linux-gnu", tmp_path).read_bytes()
    path = tmp_path / "made.a"
    path.write_bytes(_ar(arm, b"no code", arm))
    assert architecture_of(path).processor == "aarch64"
    path.write_bytes(_ar(arm, intel))
    with pytest.raises(ValueError, match=r"mixes code for AArch64 .* with code for x86-64"):
        architecture_of(path)
    with pytest.raises(ValueError, match=r"cannot load '.*made\.a': it mixes code"):
        tvm.runtime.load_module(path)
    path.write_bytes(_ar(b"text"))
    with pytest.raises(ValueError, match="an archive without any code"):
        architecture_of(path)


def test_tars(tmp_path: Path) -> None:
    other = "x86_64" if this_architecture().processor == "aarch64" else "aarch64"
    content = object_for(f"{other}-linux-gnu", tmp_path).read_bytes()
    path = tmp_path / "made.tar"
    with tarfile.open(path, "w") as archive:
        for name, data in (("devc.o", content), ("notes.txt", b"text")):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    assert architecture_of(path) == OBJECTS[f"{other}-linux-gnu"]
    with pytest.raises(ValueError, match=r"made\.tar': it is built for"):
        tvm.runtime.load_module(path)


def test_a_tar_of_objects_is_loaded(tmp_path: Path) -> None:
    a = te.placeholder((4,), name="a")
    b = te.compute((4,), lambda i: a[i] + 1.0, name="b")
    tvm.build(te.create_schedule(b.op), [a, b], target="llvm", name="f").save(tmp_path / "lib0.o")
    with tarfile.open(tmp_path / "made.tar", "w") as archive:
        archive.add(tmp_path / "lib0.o", "lib0.o")
    x, y = tvm.nd.array(np.arange(1, 5, dtype="float32")), tvm.nd.empty((4,))
    tvm.runtime.load_module(tmp_path / "made.tar")["f"](x, y)
    assert y.numpy().tolist() == [2.0, 3.0, 4.0, 5.0]


def test_fat_files(tmp_path: Path) -> None:
    parts = [
        object_for(triple, tmp_path).read_bytes()
        for triple in ("x86_64-apple-macos", "aarch64-apple-macos")
    ]
    places = [64, 64 + len(parts[0])]
    head = struct.pack(">II", 0xCAFEBABE, 2) + b"".join(
        struct.pack(">IIIII", 0x01000007, 3, at, len(part), 0)
        for at, part in zip(places, parts, strict=True)
    )
    path = tmp_path / "fat.dylib"
    path.write_bytes(head.ljust(64, b"\0") + b"".join(parts))
    assert [a.processor for a in architectures_of(path)] == ["x86", "aarch64"]
    with pytest.raises(ValueError, match=r"each of x86-64 \(Mach-O\) and AArch64 \(Mach-O\)"):
        architecture_of(path)
    require_architecture(path, Architecture("macho", "aarch64", 64))
    with pytest.raises(ValueError, match="this machine is x86-64"):
        require_architecture(path, Architecture("elf", "x86", 64))
    path.write_bytes(struct.pack(">II", 0xCAFEBABE, 61) + bytes(64))  # a class of Java
    with pytest.raises(ValueError, match="neither ELF, Mach-O, COFF nor wasm"):
        architecture_of(path)


@pytest.mark.parametrize("triple", ["armv7l-linux-gnueabihf", "x86_64-windows-gnu"])
def test_broken_bytes_are_an_error_of_one_type(triple: str, tmp_path: Path) -> None:
    good = object_for(triple, tmp_path).read_bytes()
    path, rng = tmp_path / "broken", random.Random(7)
    for form in (good, _ar(good, good)):
        for _ in range(300):
            data = bytearray(form)
            for _ in range(rng.randrange(1, 12)):
                data[rng.randrange(min(len(data), 200))] = rng.choice((0, 1, 127, 128, 255))
            path.write_bytes(data[: rng.randrange(len(data))])
            _read(path)


@settings(max_examples=150)
@given(
    magic=st.sampled_from([
        b"\x7fELF\1\1\1", b"\x7fELF\2\2\1", b"\xca\xfe\xba\xbe\0\0\0\2", b"\xca\xfe\xba\xbf",
        b"\xcf\xfa\xed\xfe", b"!<arch>\n", b"\0asm", b"MZ", b"\x64\x86", b"", bytes(257) + b"ustar",
    ]),
    rest=st.binary(max_size=600),
)
def test_any_bytes(
    magic: bytes, rest: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(magic + rest)
    _read(path)


def _read(path: Path) -> None:
    try:
        for found in architectures_of(path):
            assert str(found)
    except ValueError as error:
        assert path.name in str(error)
