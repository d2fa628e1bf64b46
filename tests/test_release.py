"""What a release is checked for, and how it is told."""

import io
import os
import struct
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import sterna
from sterna.support import native
from tests.support import ROOT


@pytest.fixture(scope="module")
def release() -> Iterator[ModuleType]:
    sys.path.insert(0, str(ROOT / "build_tools"))
    try:
        import release

        yield release
    finally:
        sys.path.remove(str(ROOT / "build_tools"))


def wheel_of(content: bytes, folder: Path, tag: str) -> Path:
    path = folder / f"sterna-0.1.0-cp311-cp311-{tag}.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("sterna/runtime/_core.so", content)
    return path


def test_libraries_are_for_the_wheel_and_its_system(release: ModuleType, tmp_path: Path) -> None:
    own = next(native.library_folder().glob("libsterna.so")).read_bytes()
    machine = {62: "x86_64", 183: "aarch64"}[struct.unpack_from("<H", own, 18)[0]]
    other = {"x86_64": "aarch64", "aarch64": "x86_64"}[machine]
    check = release.check_wheel
    assert check(wheel_of(own, tmp_path, f"manylinux_2_99_{machine}")) == []
    (old,) = {each.partition("GLIBC")[0] for each in
              check(wheel_of(own, tmp_path, f"manylinux_2_2_{machine}"))}
    assert "it needs" in old
    assert "another processor" in check(wheel_of(own, tmp_path, f"manylinux_2_17_{other}"))[0]
    assert "no Mach-O" in check(wheel_of(own, tmp_path, "macosx_11_0_arm64"))[0]
    assert "no ELF" in check(wheel_of(b"MZ" * 40, tmp_path, f"manylinux_2_17_{machine}"))[0]
    assert "not known" in check(wheel_of(own, tmp_path, "win_arm64"))[0]
    assert "no library of Windows" in check(wheel_of(own, tmp_path, "win_amd64"))[0]


def mach_o(processor: int, version: int) -> bytes:
    header = struct.pack("<8I", 0xFEEDFACF, processor, 0, 6, 1, 24, 0, 0)
    return header + struct.pack("<6I", 0x32, 24, 1, version << 16, 0, 0)


def test_files_of_macos(release: ModuleType, tmp_path: Path) -> None:
    arm = 0x0100000C
    check = release.check_wheel
    assert check(wheel_of(mach_o(arm, 11), tmp_path, "macosx_11_0_arm64")) == []
    assert "macOS 14.0" in check(wheel_of(mach_o(arm, 14), tmp_path, "macosx_11_0_arm64"))[0]
    assert "processor" in check(wheel_of(mach_o(arm, 11), tmp_path, "macosx_11_0_x86_64"))[0]


def pe(processor: int, library: bytes) -> bytes:
    """A library of Windows with one section, whose addresses are places in the file."""
    head = b"MZ".ljust(0x3C, b"\0") + struct.pack("<I", 0x40) + b"PE\0\0"
    head += struct.pack("<HHIIIHH", processor, 1, 0, 0, 0, 240, 0)
    imports = 0x40 + 24 + 240 + 40
    head += b"\0" * 120 + struct.pack("<I", imports) + b"\0" * 116
    head += struct.pack("<8sIIII16x", b".data", 4096, 0, 4096, 0)
    return (head + struct.pack("<12xI4x", imports + 40) + bytes(20) + library + b"\0").ljust(4096)


def test_files_of_windows(release: ModuleType, tmp_path: Path) -> None:
    check = release.check_wheel
    amd64, arm64 = 0x8664, 0xAA64
    assert check(wheel_of(pe(amd64, b"KERNEL32.dll"), tmp_path, "win_amd64")) == []
    assert check(wheel_of(pe(amd64, b"python311.dll"), tmp_path, "win_amd64")) == []
    wrong = check(wheel_of(pe(amd64, b"libgcc_s.dll"), tmp_path, "win_amd64"))
    assert "it needs libgcc_s.dll" in wrong[0]
    assert "processor" in check(wheel_of(pe(arm64, b"KERNEL32.dll"), tmp_path, "win_amd64"))[0]


def test_wheels_are_tried_by_their_interpreters(release: ModuleType) -> None:
    here = f"manylinux_2_17_{os.uname().machine}"
    tag = release.tag_of(sys.executable)
    find = release.interpreter_of
    assert find(Path(f"sterna-0.1.0-{tag}-{tag}-{here}.whl"), [sys.executable]) == sys.executable
    assert find(Path(f"sterna-0.1.0-cp399-cp399-{here}.whl"), [sys.executable]) is None
    assert find(Path(f"sterna-0.1.0-{tag}-{tag}-win_amd64.whl"), [sys.executable]) is None


def test_an_sdist_has_no_times_of_its_own(release: ModuleType) -> None:
    def packed(time: int) -> bytes:
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w:gz") as tar:
            for name in ("b", "a") if time else ("a", "b"):
                member = tarfile.TarInfo(name)
                member.size, member.mtime, member.uid = 1, time, time
                tar.addfile(member, io.BytesIO(b"x"))
        return out.getvalue()

    assert release.without_times(packed(0)) == release.without_times(packed(7))


def test_a_run_goes_on_with_what_it_made_of_the_same_commit(
    release: ModuleType, tmp_path: Path
) -> None:
    wheel = tmp_path / "sterna-0.1.0-cp311-cp311-win_amd64.whl"
    wheel.write_bytes(b"of another commit")
    release.forget_other_commits(tmp_path)
    assert not wheel.exists()
    release.write_whole(wheel, b"of this one")
    release.forget_other_commits(tmp_path)
    assert wheel.read_bytes() == b"of this one"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["COMMIT", wheel.name]


def test_the_version_is_the_package_s(release: ModuleType) -> None:
    assert release.version() == sterna.__version__


def test_what_is_told(release: ModuleType) -> None:
    log = "# Changelog\n\n## [Unreleased]\n\n- new\n\n## [0.1.0] - 2026-01-01\n\n- first\n"
    assert release.notes(log, "0.1.0") == "# Sterna 0.1.0\n\n- first\n"
    assert "- new" in release.notes(log, "0.2.0")
    made = release.sbom("0.1.0", {"sterna.whl": "00"})
    names = [part["name"] for part in made["components"]]
    assert names[0] == "sterna.whl" and "numpy" in names and made["bomFormat"] == "CycloneDX"
