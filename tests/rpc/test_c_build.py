"""The server in C as a program: small, without a warning, for several machines."""

import subprocess
import sys
from pathlib import Path

import pytest

from sterna import cli
from sterna.support.server_program import build_server
from tests.rpc.c_server import STRICT, write_sources
from tests.support import require_module

LARGEST = 150_000


@pytest.mark.parametrize("machine", ["aarch64", "x86_64"])
def test_it_is_small(tmp_path: Path, machine: str) -> None:
    require_module("ziglang")
    zig = f"{sys.executable} -m ziglang cc -target {machine}-linux-gnu"
    build_server(tmp_path / "server", f"{machine}-linux-gnu", zig)
    assert (tmp_path / "server").stat().st_size <= LARGEST


@pytest.mark.parametrize("triple", ["aarch64-macos", "arm-linux-gnueabihf", "riscv64-linux-musl"])
def test_external_compilers_have_nothing_to_say(tmp_path: Path, triple: str) -> None:
    require_module("ziglang")
    server, _ = write_sources(tmp_path)
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", triple]
    quick = ["-O0", "-fno-sanitize=undefined", "-c"]  # what it warns of does not depend on it
    command = [*zig, *STRICT, *quick, str(server), "-o", str(tmp_path / "server.o")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_its_command_line(tmp_path: Path, sanitized: Path) -> None:
    def run(*words: str, secret: str = "") -> tuple[int, str]:
        environment = {"STERNA_RPC_SECRET": secret} if secret else {}
        done = subprocess.run(
            [sanitized, *words], capture_output=True, text=True, timeout=20, check=False,
            env=environment,
        )
        return done.returncode, done.stdout + done.stderr

    assert run("--help")[0] == 0 and "--max-memory" in run("--help")[1]
    assert run("--version")[1].startswith("sterna ")
    for words, reason in (
        (["--host", "0.0.0.0"], "set STERNA_RPC_SECRET"),
        (["--host", "::"], "set STERNA_RPC_SECRET"),
        (["--port", "ninety"], "--port 'ninety' is not understood"),
        (["--max-memory", "4T"], "--max-memory '4T' is not understood"),
        (["--tracker", "here"], "--tracker 'here' is not understood"),
        (["--tracker", "here:1"], "--tracker needs --key"),
        (["--colour", "red"], "there is no option '--colour'"),
        (["--port"], "--port needs a value"),
        (["--port-end", "1"], "--port-end lies before --port"),
        (["--secret-file", str(tmp_path / "gone")], "No such file"),
        (["--load-library", str(tmp_path / "gone.so")], "gone.so"),
    ):
        status, said = run(*words)
        assert status != 0 and reason in said, said


def test_the_command_that_compiles_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["rpc-server", "-o", "server"]) == 0
    assert "server: " in capsys.readouterr().out
    version = subprocess.run(["./server", "--version"], capture_output=True, check=True)
    assert version.stdout.startswith(b"sterna ")
    assert cli.main(["rpc-server", "--target", "llvm -mtriple=x86_64-windows-gnu"]) == 4
    assert "Linux, Android and macOS" in capsys.readouterr().err
