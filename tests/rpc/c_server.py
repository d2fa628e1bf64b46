"""The server in C, built and started for tests."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support import LEAKS, ROOT, clean_environment, require_program

RUNTIME = ROOT / "runtime"
STRICT = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{RUNTIME}"]
SANITIZED = ["-O1", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", str(LEAKS)]
SYSTEM = ["-rdynamic", "-lpthread", "-ldl", "-lm"]

# Words of sanitizers that no server may utter. Of an array that is too large they only warn.
ALARMS = ("ERROR: AddressSanitizer", "ERROR: LeakSanitizer", "runtime error:", "DEADLYSIGNAL")


def write_sources(folder: Path) -> list[Path]:
    """The server and the runtime, in one C file each."""
    made = []
    for name in ("rpc", "src"):
        made.append(folder / f"{name}.c")
        command = [sys.executable, str(RUNTIME / "amalgamate.py"), name]
        made[-1].write_bytes(subprocess.run(command, capture_output=True, check=True).stdout)
    return made


def build(folder: Path, compiler: Sequence[str], options: Sequence[str]) -> Path:
    """The server as a program."""
    program = folder / "rpc_server"
    sources = write_sources(folder)
    command = [*compiler, *STRICT, *options, *map(str, sources), "-o", str(program), *SYSTEM]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return program


def build_sanitized(folder: Path) -> Path:
    """The server as a program that notices every mistake in memory."""
    return build(folder, [require_program("gcc")], SANITIZED)


def children_of(process: int) -> list[int]:
    """The processes that a process has started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == process:
            found.append(int(path.parent.name))
    return found


def memory_of(process: int) -> int:
    """Kilobytes that a process has in use."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


def is_sanitized(program: Path) -> bool:
    """Whether a program was built with the address sanitizer."""
    return b"__asan_init" in program.read_bytes()


@dataclass
class Running:
    """A server that runs."""

    process: subprocess.Popen[bytes]
    port: int
    folder: Path
    log: Path

    def session(self) -> int:
        """The process of its only session."""
        (supervisor,) = children_of(self.process.pid)
        (session,) = children_of(supervisor)
        return session

    def await_quiet(self, seconds: float = 60) -> None:
        """Wait until all sessions are over."""
        end = time.monotonic() + seconds
        while children_of(self.process.pid):
            assert time.monotonic() < end, "sessions do not end"
            time.sleep(0.02)
        assert not list(self.folder.glob("sterna-rpc-*")), "a session's folder is left"


@contextmanager
def running(
    command: Sequence[str | Path], *options: str, secret: str | None = None
) -> Iterator[Running]:
    """Starts a server on a free port, and ends it; its complaints are the test's."""
    folder = Path(tempfile.mkdtemp())
    log = folder / "log"
    asan = "detect_leaks=1:quarantine_size_mb=1:allocator_may_return_null=1"
    environment = clean_environment(TMPDIR=str(folder), ASAN_OPTIONS=asan)
    environment.pop("STERNA_RPC_SECRET", None)
    if secret is not None:
        environment["STERNA_RPC_SECRET"] = secret
    with open(log, "wb") as file:
        words = [str(word) for word in command]
        # A sanitizer's own memory is more than any limit.
        unlimited = ["--max-memory", "0"] if is_sanitized(Path(words[-1])) else []
        process = subprocess.Popen(
            [*words, "--port", "0", *unlimited, *options], stderr=file, env=environment, cwd=os.sep
        )
    try:
        end = time.monotonic() + 60
        while b"\n" not in log.read_bytes():
            assert process.poll() is None and time.monotonic() < end, log.read_text()
            time.sleep(0.01)
        port = int(log.read_text().splitlines()[0].rpartition(":")[2])
        yield Running(process, port, folder, log)
        process.terminate()
        assert process.wait(120) == 0  # it may be searched for leaks
        said = log.read_text(errors="replace")
        alarms = [said.find(alarm) for alarm in ALARMS if alarm in said]
        assert not alarms, said[max(0, min(alarms) - 500) : min(alarms) + 8000]
        assert not list(folder.glob("sterna-rpc-*")), "a session's folder is left"
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)
