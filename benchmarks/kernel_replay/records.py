"""What is kept about kernels, and the folder that it is kept in.

    FOLDER/origin.json                     the sources that it was made from
    FOLDER/MACHINE/kernels/DIGEST.json     a KernelRecord, by the digest of its fused function
    FOLDER/MACHINE/networks/NAME.json      a NetworkRecord: the calls of its kernels, in order
    FOLDER/texts/DIGEST.zz                 loops and code as text, compressed, by their digests

Every file is written aside and moved into place, so that several processes may fill one folder, and
what was broken off goes on where it stood.
"""

import hashlib
import json
import os
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class KernelRecord:
    """A fused function compiled for a machine."""

    anchor: str = ""
    """The operator whose loops it follows."""
    schedule: str = ""
    """What its schedule decided, as text."""
    loops: str = ""
    """The digest of its loops after all passes, where names do not matter."""
    lines: int = 0
    """Of these loops as text."""
    code: str = ""
    """The digest of its assembly or its C; empty where it was not asked for."""
    instructions: Mapping[str, int] = field(default_factory=dict)
    """How often each instruction stands in the assembly."""
    error: str = ""
    """Why it does not compile."""

    @property
    def size(self) -> str:
        """How long the code is, or the loops where there is none."""
        count = sum(self.instructions.values())
        return f"{count} instructions" if count else f"{self.lines} lines"


@dataclass(frozen=True)
class CallRecord:
    """A call of a kernel in a network."""

    function: str
    """The digest of its fused function."""
    result: str
    """The type of what it gives."""
    flops: int
    constants: str
    """The digest of its constant arguments; empty where it has none."""


@dataclass(frozen=True)
class NetworkRecord:
    """The calls of a network for a machine, or why there are none."""

    calls: tuple[CallRecord, ...] = ()
    error: str = ""


class Folder:
    """A folder of records."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def claim(self, origin: str) -> None:
        """Begin a folder, or go on with one of the same sources."""
        file = self.path / "origin.json"
        if file.is_file():
            known = json.loads(file.read_text())["sources"]
            if known != origin:
                raise ValueError(
                    f"'{self.path}' was saved from other sources; name a new folder, or remove it"
                )
        else:
            self._write(file, json.dumps({"sources": origin}).encode())

    def machines(self) -> list[str]:
        """The machines that something was compiled for."""
        if not (self.path / "origin.json").is_file():
            raise ValueError(f"'{self.path}' is no folder that 'replay.py save' made")
        return sorted(path.parent.name for path in self.path.glob("*/networks"))

    def networks(self, machine: str) -> list[str]:
        """The networks that were compiled for a machine."""
        return sorted(path.stem for path in (self.path / machine / "networks").glob("*.json"))

    def network(self, machine: str, name: str) -> NetworkRecord | None:
        """A network's record, if it is there."""
        read = self._read(self._network_file(machine, name))
        if read is None:
            return None
        return NetworkRecord(tuple(CallRecord(**call) for call in read["calls"]), read["error"])

    def put_network(self, machine: str, name: str, record: NetworkRecord) -> None:
        """Keep a network's record."""
        self._write(self._network_file(machine, name), json.dumps(asdict(record)).encode())

    def kernel(self, machine: str, function: str) -> KernelRecord | None:
        """A kernel's record, if it is there."""
        read = self._read(self._kernel_file(machine, function))
        return None if read is None else KernelRecord(**read)

    def kernels(self, machine: str) -> list[KernelRecord]:
        """All kernels of a machine."""
        files = (self.path / machine / "kernels").glob("*.json")
        return [KernelRecord(**self._read(file)) for file in files]

    def put_kernel(self, machine: str, function: str, record: KernelRecord) -> None:
        """Keep a kernel's record."""
        self._write(self._kernel_file(machine, function), json.dumps(asdict(record)).encode())

    def text(self, digest: str) -> str:
        """A text by its digest."""
        return zlib.decompress((self.path / "texts" / f"{digest}.zz").read_bytes()).decode()

    def put_text(self, text: str) -> str:
        """Keep a text; its digest."""
        digest = digest_of(text.encode())
        file = self.path / "texts" / f"{digest}.zz"
        if not file.is_file():
            self._write(file, zlib.compress(text.encode()))
        return digest

    def _network_file(self, machine: str, name: str) -> Path:
        return self.path / machine / "networks" / f"{name}.json"

    def _kernel_file(self, machine: str, function: str) -> Path:
        return self.path / machine / "kernels" / f"{function}.json"

    @staticmethod
    def _read(file: Path) -> Any:
        try:
            return json.loads(file.read_bytes())
        except FileNotFoundError:
            return None

    @staticmethod
    def _write(file: Path, content: bytes) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=".")
        with os.fdopen(handle, "wb") as aside:
            aside.write(content)
        os.replace(name, file)


def digest_of(*parts: bytes) -> str:
    """A short name for bytes."""
    digest = hashlib.blake2b(digest_size=12)
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
