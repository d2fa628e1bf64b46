"""Which compilation targets this machine can test."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping

from sterna import runtime
from sterna.support import options
from sterna.target.kind import all_kinds

DEFAULT_TARGETS = ("llvm", "cuda", "opencl", "vulkan", "metal", "rocm", "hexagon")

# DLPack's number of the machine's own CPU; code for another needs a device of its own.
_CPU = 1

_VARIABLES = "STERNA_TEST_TARGETS (or TVM_TEST_TARGETS)"


def target_kind(target: object) -> str:
    """The kind of a target given as text, JSON text, a mapping or a target object."""
    if isinstance(target, str):
        text = target.strip()
        if text.startswith("{"):
            return target_kind(json.loads(text))
        if text:
            return text.split()[0]
    elif isinstance(target, Mapping):
        if isinstance(kind := target.get("kind"), str):
            return kind
    else:
        kind = getattr(target, "kind", None)
        name = getattr(kind, "name", kind)
        if isinstance(name, str):
            return name
    raise TypeError(f"{target!r} is not a target: give a target's name, such as 'llvm'")


def matches_target(target: object, pattern: str) -> bool:
    """Whether ``pattern``, a bare kind or a full target text, covers the target."""
    return pattern == target_kind(target) or pattern == str(target)


def needs_own_hardware(kind: str) -> bool:
    """Whether code of this kind runs on a device other than the host CPU."""
    known = all_kinds().get(kind)
    return known is None or known.device_type != _CPU


def codegen_absence(kind: str) -> str | None:
    """Why Sterna has no support for the kind, or None if it has.

    Raises ValueError for a kind that is not known at all.
    """
    try:
        usable = runtime.enabled(kind)
    except ValueError:
        if kind not in DEFAULT_TARGETS:
            raise
        usable = False
    return None if usable else "not enabled in this build of sterna"


def target_absence(target: object) -> str | None:
    """Why code for the target cannot be built and run here, or None if it can.

    Raises ValueError for a kind that is not known at all.
    """
    kind = target_kind(target)
    absence = codegen_absence(kind)
    if absence is None and not runtime.device(kind).exist:
        absence = f"no {kind} device on this machine"
    return absence


def listed_targets() -> list[str]:
    """The targets that the environment asks for, each once, in order; empty if it does not."""
    names = (name.strip() for name in (options.test_targets or "").split(";"))
    return list(dict.fromkeys(name for name in names if name))


def enabled_targets() -> list[tuple[str, runtime.Device]]:
    """The targets to test, each with its device.

    These are the targets listed in STERNA_TEST_TARGETS, else in TVM_TEST_TARGETS (separated by
    semicolons), else a default list, less those that cannot be used here. A listed name that
    cannot be used is reported: a name that is not a target raises ValueError, any other gives a
    UserWarning. With STERNA_REQUIRE_ALL=1 a listed target that needs no special hardware must be
    usable, and RuntimeError is raised if it is not.
    """
    listed = listed_targets()
    usable: list[tuple[str, runtime.Device]] = []
    for target in listed or DEFAULT_TARGETS:
        try:
            kind = target_kind(target)
            absence = target_absence(target)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{_VARIABLES} lists {target!r}, which is not a known target: {error}"
            ) from error
        if absence is None:
            usable.append((target, runtime.device(kind)))
        elif listed:
            message = f"{_VARIABLES} lists {target!r}, which cannot be tested: {absence}"
            if options.require_all and not needs_own_hardware(kind):
                raise RuntimeError(f"{message} (STERNA_REQUIRE_ALL is set)")
            warnings.warn(message, UserWarning, stacklevel=2)
    return usable


def device_enabled(target: object) -> bool:
    """Whether targets of this one's kind are among ``enabled_targets()``."""
    kind = target_kind(target)
    return any(target_kind(name) == kind for name, _ in enabled_targets())
