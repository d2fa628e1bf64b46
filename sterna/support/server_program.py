"""The RPC server in C as a program: for this machine or for another."""

import os
from pathlib import Path

from sterna.support import cross, native, toolchain

# As setup.py builds the runtime: small, since what is hot in a model is the model's own code. The
# runtime's functions stay visible: libraries that clients upload may call them.
SMALL = (
    "-std=c11", "-Os", "-fno-unwind-tables", "-fno-asynchronous-unwind-tables",
    "-ffunction-sections", "-fdata-sections", "-fvisibility=hidden", "-DSTERNA_BUILD", "-rdynamic",
)

LINKING = {
    "linux": ("-s", "-Wl,--gc-sections", "-Wl,--hash-style=gnu", "-lpthread", "-ldl", "-lm"),
    "android": ("-s", "-Wl,--gc-sections", "-Wl,--hash-style=gnu", "-ldl", "-lm"),
    "macos": ("-Wl,-dead_strip", "-lpthread", "-lm"),
}


def build_server(output: Path, triple: str, cc: str | os.PathLike[str] | None = None) -> None:
    """Compile the server for a triple. It loads what clients upload, so libc is linked shared."""
    machine = cross.Machine.of(triple)
    if machine is None or machine.system not in LINKING:
        raise NotImplementedError(
            f"the RPC server runs on Linux, Android and macOS, and '{triple}' is none of these"
        )
    command = cc or (None if cross.is_here(triple) else cross.compiler_for(triple))
    sources = [native.rpc_server_source(), native.runtime_source()]
    options = [*SMALL, *LINKING[machine.system], *machine.compact]
    toolchain.link_executable(output, sources, options, command, needs_runtime=False)
