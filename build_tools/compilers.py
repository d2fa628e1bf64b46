"""Which C compiler builds the runtime: the machine's own, else PyPI's ziglang."""

import os
import shlex
import shutil
import sys
import sysconfig

import platforms


def find_system_compiler() -> str | None:
    """The command of a C compiler on this machine, or None."""
    if sys.platform == "win32":
        return "msvc"  # setuptools finds it, or says what to install
    configured = os.environ.get("CC") or sysconfig.get_config_var("CC") or ""
    for command in (configured, "cc", "gcc", "clang"):
        words = shlex.split(command)
        if words and shutil.which(words[0]):
            return command
    return None


def requirements() -> list[str]:
    """What the build needs beside setuptools."""
    is_for_another = platforms.wanted().zig_target is not None
    return [] if find_system_compiler() and not is_for_another else ["ziglang>=0.13"]


def choose(zig_target: str | None = None) -> None:
    """Points setuptools at the compiler by the variables that it reads.

    zig_target: what to compile for where that is another machine.
    """
    if sys.platform == "win32":
        return
    command = None if zig_target else find_system_compiler()
    if command is None:
        zig = f"{shlex.quote(sys.executable)} -m ziglang"
        command = f"{zig} cc -target {zig_target}" if zig_target else f"{zig} cc"
        os.environ["AR"] = f"{zig} ar"
    os.environ["CC"] = command
    os.environ["LDSHARED"] = f"{command} -shared"
