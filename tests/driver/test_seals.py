"""What was changed after it was exported is refused before anything of it is mapped or linked."""

import io
import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import sterna
from sterna import te
from sterna.cli import main
from sterna.contrib import cc
from sterna.runtime import load_module
from sterna.support import ed25519, keys, seal
from sterna.support.elf_check import check_elf
from sterna.support.file_view import BrokenFileError, FileView
from sterna.testing.fuzz.mutate import mutate, mutate_head
from tests.support import require_program

FORMS = (".so", ".tar", ".o", ".a")
MUTATED = 120

# Loads every file of a folder; each must be a ValueError that names the file.
LOAD_ALL = """
import sys, warnings
from pathlib import Path
from sterna.runtime import load_module
warnings.simplefilter("ignore")
loaded = []
for path in sorted(Path(sys.argv[1]).iterdir()):
    print(path, flush=True)
    try:
        load_module(path)
        loaded.append(path.name)
    except ValueError as error:
        assert str(path) in str(error), error
print("loaded:", *loaded)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One function in files of every form, as they are, signed and without seals, and keys."""
    made = tmp_path_factory.mktemp("seals")
    a = te.placeholder((8,), name="a")
    b = te.compute((8,), lambda i: a[i] + 1, name="b")
    module = sterna.build(te.create_schedule(b.op), [a, b], "llvm", name="add_one")
    for name in ("mine", "other"):
        keys.make_keys(made / f"{name}.key", made / f"{name}.pub")
    for form in FORMS:
        module.export_library(made / f"plain{form}")
        module.export_library(made / f"signed{form}", sign=made / "mine.key")
        whole = (made / f"plain{form}").read_bytes()
        if form != ".a":
            (made / f"bare{form}").write_bytes(whole[: -seal.SIZE])
    return made


def works(path: Path, **options: object) -> bool:
    """Whether a file loads, and its function adds one."""
    result = np.zeros(8, "float32")
    load_module(path, **options)["add_one"](np.ones(8, "float32"), result)  # type: ignore[arg-type]
    return bool((result == 2).all())


def refused(files: Path) -> list[str]:
    """The names of files that were loaded, by a process that must survive all of them."""
    done = subprocess.run(
        [sys.executable, "-c", LOAD_ALL, str(files)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, (done.returncode, done.stdout[-300:], done.stderr[-3000:])
    return done.stdout.splitlines()[-1].split()[1:]


def write_mutants(
    into: Path, data: bytes, form: str, change: Callable[[bytes, random.Random], bytes], count: int
) -> None:
    """So many files that differ from one that is right."""
    into.mkdir()
    rng = random.Random(form)
    made: set[bytes] = set()
    while len(made) < count:
        changed = change(data, rng)
        if changed != data and len(changed) > 0:
            made.add(changed)
    for place, changed in enumerate(sorted(made)):
        (into / f"m{place}{form}").write_bytes(changed)


@pytest.mark.parametrize("form", [".so", ".tar", ".o"])
def test_no_mutated_file_is_loaded(folder: Path, tmp_path: Path, form: str) -> None:
    data = (folder / f"plain{form}").read_bytes()
    content = data[: -seal.SIZE].rstrip(b"\0")
    # Several changes might cut off an archive's seal and change a part that is not loaded.
    changes = (1,) if form == ".tar" else (1, 2, 4)

    def change(whole: bytes, rng: random.Random) -> bytes:
        made = mutate_head(whole, rng) if rng.random() < 0.5 else mutate(whole, rng, changes)
        # What keeps all of the content is the same library, which may have lost its seal.
        return whole if made.startswith(content) else made

    write_mutants(tmp_path / "mutants", data, form, change, MUTATED)
    assert refused(tmp_path / "mutants") == []


def test_a_dynamic_section_without_symbols_is_refused(folder: Path) -> None:
    whole = bytearray((folder / "bare.so").read_bytes())
    at, count = struct.unpack_from("<Q", whole, 32)[0], struct.unpack_from("<H", whole, 56)[0]
    for place in range(at, at + 56 * count, 56):
        kind, _, offset = struct.unpack_from("<IIQ", whole, place)
        (size,) = struct.unpack_from("<Q", whole, place + 32)
        if kind == 2:  # PT_DYNAMIC
            whole[offset : offset + size] = bytes(size)
    with pytest.raises(BrokenFileError, match="no symbols or no names"):
        check_elf(FileView(io.BytesIO(whole), 0, len(whole)))


@pytest.mark.parametrize("form", [".so", ".tar", ".o"])
def test_broken_headers_without_a_seal_crash_nothing(
    folder: Path, tmp_path: Path, form: str
) -> None:
    """Foreign files are checked as far as their format allows."""
    data = (folder / f"bare{form}").read_bytes()

    def cut(whole: bytes, rng: random.Random) -> bytes:
        return whole[: rng.randrange(1, len(whole.rstrip(b"\0")) - 200)]

    write_mutants(tmp_path / "cut", data, form, cut, 20)
    assert refused(tmp_path / "cut") == []
    write_mutants(tmp_path / "heads", data, form, lambda d, rng: mutate_head(d, rng, 64), 40)
    refused(tmp_path / "heads")  # none of them ends the process


def test_segments_that_a_loader_may_not_use_are_refused(folder: Path, tmp_path: Path) -> None:
    """A library whose segments cannot be read, written or run as they must be ends a process."""
    whole = (folder / "bare.so").read_bytes()
    (table,), (count,) = struct.unpack_from("<Q", whole, 32), struct.unpack_from("<H", whole, 56)
    rows = [table + 56 * place for place in range(count)]
    loads = [row for row in rows if struct.unpack_from("<I", whole, row) == (1,)]
    (tmp_path / "flags").mkdir()
    for number, row in enumerate(loads):
        made = bytearray(whole)
        struct.pack_into("<I", made, row + 4, 0)
        (tmp_path / "flags" / f"{number}.so").write_bytes(made)
    assert loads and refused(tmp_path / "flags") == []


def test_a_linker_is_given_objects_alone(folder: Path, tmp_path: Path) -> None:
    """What is no object by its header is not looked at for names of sections that it lacks."""
    data = bytearray((folder / "bare.o").read_bytes())
    data[16:18], data[62:64] = b"\x21\0", b"\x40\0"
    (tmp_path / "kinds").mkdir()
    (tmp_path / "kinds" / "other.o").write_bytes(data)
    assert refused(tmp_path / "kinds") == []


def words_under_relocations(whole: bytes) -> list[int]:
    """Where the instructions of an object lie that a linker will change."""
    (table,), (count,) = struct.unpack_from("<Q", whole, 40), struct.unpack_from("<H", whole, 60)
    sections = [struct.unpack_from("<IIQQQQIIQQ", whole, table + 64 * row) for row in range(count)]
    return [
        sections[own[7]][4] + at
        for own in sections if own[1] == 4 and sections[own[7]][2] & 4
        for at, _, _ in struct.iter_unpack("<QQq", whole[own[4] : own[4] + own[5]])
    ]


def test_relocations_for_other_instructions_are_refused(tmp_path: Path) -> None:
    """LLVM's linker ends the process where an instruction is not what a relocation is for."""
    a = te.placeholder((8,), name="a")
    b = te.compute((8,), lambda i: te.exp(a[i]), name="b")
    target = "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1"
    sterna.build(te.create_schedule(b.op), [a, b], target).export_library(tmp_path / "whole.o")
    whole = (tmp_path / "whole.o").read_bytes()[: -seal.SIZE]
    check_elf(FileView(io.BytesIO(whole), 0, len(whole)), is_object=True)
    places = words_under_relocations(whole)
    for place in places:
        made = bytearray(whole)
        made[place + 3] ^= 0xFF
        with pytest.raises(BrokenFileError, match="another instruction"):
            check_elf(FileView(io.BytesIO(made), 0, len(made)), is_object=True)
    assert len(places) > 5


@pytest.mark.parametrize("form", FORMS)
def test_every_byte_counts(folder: Path, tmp_path: Path, form: str) -> None:
    """One changed byte, of the content or of the seal itself."""
    data = (folder / f"plain{form}").read_bytes()
    path = tmp_path / f"changed{form}"
    begin = 68 + 60 if form == ".a" else 0  # the table of an archive is not loaded
    end = len(data)
    places = [*range(max(begin, end - seal.SIZE), end, 9), end // 2, end - 1]
    for place in places:
        changed = bytearray(data)
        changed[place] ^= 0x10
        path.write_bytes(changed)
        if 8 < len(data) - place <= seal.SIZE - 56:
            continue  # of the signature, for which nobody asks here
        with pytest.raises(ValueError, match=r"cannot load .*changed"):
            load_module(path)


@pytest.mark.parametrize("form", FORMS)
def test_trust(folder: Path, form: str) -> None:
    mine, other = folder / "mine.pub", folder / "other.pub"
    assert works(folder / f"plain{form}") and works(folder / f"signed{form}")
    assert works(folder / f"signed{form}", trust=mine)
    assert works(folder / f"signed{form}", trust=[other, mine])
    with pytest.raises(ValueError, match=r"not signed, and only files of .*mine\.pub"):
        works(folder / f"plain{form}", trust=mine)
    with pytest.raises(ValueError, match="signed by another key"):
        works(folder / f"signed{form}", trust=other)
    if form != ".a":
        with pytest.raises(ValueError, match="has no seal, and only signed files"):
            works(folder / f"bare{form}", trust=mine)


def test_a_forged_signature(folder: Path, tmp_path: Path) -> None:
    """A seal that is right for a changed content, with the signature of another one."""
    signed, path = (folder / "signed.o").read_bytes(), tmp_path / "forged.o"
    path.write_bytes(signed[: -seal.SIZE] + bytes(16))
    seal.seal(path)
    fresh = path.read_bytes()
    path.write_bytes(fresh[: -seal.SIZE + 56] + signed[-seal.SIZE + 56 :])
    assert works(path)
    with pytest.raises(ValueError, match="its signature is not that of"):
        works(path, trust=folder / "mine.pub")


def test_files_without_a_seal_are_told(folder: Path) -> None:
    with pytest.warns(RuntimeWarning, match=r"'.*bare\.so' has no seal"):
        assert works(folder / "bare.so")
    with pytest.warns(RuntimeWarning, match="has no seal"):
        assert works(folder / "bare.tar")


def test_the_check_can_be_skipped(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = bytearray((folder / "plain.so").read_bytes())
    data[-seal.SIZE + 30] ^= 1  # of the digest
    path = tmp_path / "wrong.so"
    path.write_bytes(data)
    with pytest.raises(ValueError, match="damaged"):
        works(path)
    monkeypatch.setenv("STERNA_CHECK_SEALS", "0")
    assert works(path)
    with pytest.raises(ValueError, match="not signed"):
        works(path, trust=folder / "mine.pub")


def test_same_input_same_bytes(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.so"
    shutil.copy(folder / "signed.so", copy)
    seal.seal(copy, keys.read_secret_key(folder / "mine.key"))
    assert copy.read_bytes() == (folder / "signed.so").read_bytes()


def test_linkers_and_archivers_take_sealed_files(folder: Path, tmp_path: Path) -> None:
    for name in ("plain.o", "plain.a"):
        made = tmp_path / f"{name}.so"
        words = ["-Wl,--whole-archive", str(folder / name), "-Wl,--no-whole-archive"]
        cc.create_shared(made, [], words)
        assert works(made)
    listed = subprocess.run(
        [require_program("tar"), "tf", str(folder / "plain.tar")], capture_output=True, text=True
    )
    assert (listed.returncode, listed.stderr) == (0, "") and "lib.so" in listed.stdout


# ---- keys ----

# RFC 8032, section 7.1: secret key, public key, message, signature.
VECTORS = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9"
        "b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f1"
        "1d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
]


@pytest.mark.parametrize(("secret", "public", "message", "signature"), VECTORS)
def test_ed25519_is_the_standards(
    secret: str, public: str, message: str, signature: str
) -> None:
    key, text, signed = (bytes.fromhex(each) for each in (secret, message, signature))
    assert ed25519.public_key(key).hex() == public
    assert ed25519.sign(key, text) == signed
    assert ed25519.verify(bytes.fromhex(public), text, signed)
    assert not ed25519.verify(bytes.fromhex(public), text + b"x", signed)
    for place in (0, 31, 32, 63):
        changed = bytearray(signed)
        changed[place] ^= 1
        assert not ed25519.verify(bytes.fromhex(public), text, bytes(changed))


def test_keys_are_openssls(tmp_path: Path) -> None:
    openssl = require_program("openssl")
    secret, public = tmp_path / "k.key", tmp_path / "k.pub"
    run = {"check": True, "capture_output": True}
    subprocess.run([openssl, "genpkey", "-algorithm", "ed25519", "-out", secret], **run)  # type: ignore[call-overload]
    subprocess.run([openssl, "pkey", "-in", secret, "-pubout", "-out", public], **run)  # type: ignore[call-overload]
    assert ed25519.public_key(keys.read_secret_key(secret)) == keys.read_public_key(public)
    with pytest.raises(ValueError, match="holds no private key of Ed25519"):
        keys.read_secret_key(public)
    with pytest.raises(ValueError, match="holds no public key of Ed25519"):
        keys.read_public_key(secret)


def test_keys_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["key", str(tmp_path / "me.key")]) == 0
    assert os.stat(tmp_path / "me.key").st_mode & 0o777 == 0o600
    assert keys.read_public_key(tmp_path / "me.pub")
    assert main(["key", str(tmp_path / "me.key")]) != 0
    assert "is there already" in capsys.readouterr().err
