"""Marks that choose the targets a test runs on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

import pytest

_T = TypeVar("_T", bound=Callable[..., Any])


@overload
def parametrize_targets(test: _T, /) -> _T: ...


@overload
def parametrize_targets(*targets: object) -> Callable[[_T], _T]: ...


def parametrize_targets(*targets: Any) -> Any:
    """Run a test on these targets instead of on all of ``enabled_targets()``.

    The test takes ``target``, ``dev`` or both. A target that cannot be used here is skipped.
    Used bare, the test runs on all enabled targets, as it does without the decorator.
    """
    if not targets:
        return _unchanged
    if len(targets) == 1 and _is_test(targets[0]):
        return targets[0]
    return pytest.mark.sterna_targets.with_args(*targets)


def exclude_targets(*targets: str) -> Callable[[_T], _T]:
    """Skip a test on these targets, each a kind or a full target text."""
    _check_texts("exclude_targets", targets)
    return pytest.mark.sterna_exclude_targets.with_args(*targets)


def known_failing_targets(*targets: str) -> Callable[[_T], _T]:
    """Expect a test to fail on these targets, each a kind or a full target text."""
    _check_texts("known_failing_targets", targets)
    return pytest.mark.sterna_known_failing_targets.with_args(*targets)


def _unchanged(test: _T) -> _T:
    return test


def _is_test(value: object) -> bool:
    return callable(value) and hasattr(value, "__qualname__")


def _check_texts(function: str, targets: tuple[object, ...]) -> None:
    for target in targets:
        if not isinstance(target, str):
            raise TypeError(f"{function} takes the names of targets, not {target!r}")
    if not targets:
        raise TypeError(f"{function} needs the name of at least one target")
