"""What a wheel is built for: this machine, or another one that ziglang compiles for.

STERNA_BUILD_FOR names another one, by the last part of its wheels' names.
"""

import os
import platform
import sys
import sysconfig
from dataclasses import dataclass

VARIABLE = "STERNA_BUILD_FOR"


@dataclass(frozen=True)
class Platform:
    """A system and a processor."""

    system: str
    """linux, darwin or win32, as sys.platform has it."""
    machine: str
    wheel: str | None = None
    """The last part of a wheel's name; None: as setuptools finds it for this machine."""
    zig_target: str | None = None

    @property
    def extension_suffix(self) -> str:
        """How the names of extension modules end."""
        if self.zig_target is None:
            return str(sysconfig.get_config_var("EXT_SUFFIX"))
        if self.system == "win32":
            return f".cp{sys.version_info.major}{sys.version_info.minor}-{self.wheel}.pyd"
        tag = f"cpython-{sys.version_info.major}{sys.version_info.minor}"
        place = "darwin" if self.system == "darwin" else f"{self.machine}-linux-gnu"
        return f".{tag}-{place}.so"


# Linux wheels run with glibc 2.17 and later; macOS ones from 11.0 on.
OTHERS = {
    each.wheel: each
    for each in (
        Platform("linux", "x86_64", "manylinux_2_17_x86_64", "x86_64-linux-gnu.2.17"),
        Platform("linux", "aarch64", "manylinux_2_17_aarch64", "aarch64-linux-gnu.2.17"),
        Platform("darwin", "arm64", "macosx_11_0_arm64", "aarch64-macos.11.0"),
        Platform("darwin", "x86_64", "macosx_11_0_x86_64", "x86_64-macos.11.0"),
        Platform("win32", "x86_64", "win_amd64", "x86_64-windows-gnu"),
    )
}


def wanted() -> Platform:
    """What is built for."""
    name = os.environ.get(VARIABLE)
    if not name:
        return Platform(sys.platform, platform.machine())
    if name not in OTHERS:
        raise SystemExit(f"{VARIABLE}={name}: wheels are built for {', '.join(map(str, OTHERS))}")
    return OTHERS[name]
