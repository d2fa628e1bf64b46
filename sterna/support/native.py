"""Where the C runtime's headers, libraries and source are installed."""

from pathlib import Path

_NATIVE = Path(__file__).resolve().parent.parent / "native"


def _existing(path: Path) -> Path:
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing; install sterna with pip to build its runtime")
    return path


def include_folder() -> Path:
    """The folder of sterna.h and sterna.hpp."""
    return _existing(_NATIVE / "include")


def library_folder() -> Path:
    """The folder of the shared and the static runtime."""
    return _existing(_NATIVE / "lib")


def runtime_source() -> Path:
    """The whole runtime as one C file."""
    return _existing(_NATIVE / "src" / "sterna.c")


def rpc_server_source() -> Path:
    """The RPC server, a program that links with the runtime, as one C file."""
    return _existing(_NATIVE / "src" / "rpc_server.c")


def wasm_sources() -> list[Path]:
    """What a WebAssembly module is made from beside its model: the runtime, and what it exports."""
    return [runtime_source(), _existing(_NATIVE / "src" / "wasm.c")]
