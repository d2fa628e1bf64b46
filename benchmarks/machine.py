"""What is measured on, and with which versions."""

import os
import platform
import re
import subprocess

import peers

import sterna
from sterna.target import Target, machine_of


def processor() -> str:
    """What the system calls the processor."""
    try:
        told = subprocess.run(["lscpu"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        told = ""
    named = re.search(r"^Model name:\s*(.+)$", told, re.MULTILINE)
    return named[1].strip() if named else platform.processor() or platform.machine()


def machine() -> str:
    """One line that tells this machine from others."""
    bits = 32 * machine_of(Target("llvm -mcpu=native")).lanes(32)
    cores = os.cpu_count() or 1
    return f"{platform.machine()}, {processor()}, {cores} cores, vectors of {bits} bits"


def versions() -> str:
    """Ours and the peers'."""
    named = {"sterna": sterna.__version__, "Python": platform.python_version(), **peers.installed()}
    return ", ".join(f"{name} {version}" for name, version in named.items())
