"""What happens to a test when something it needs is absent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sterna.support import options

if TYPE_CHECKING:
    # pytest gives its exception no public name that a type checker takes for a base class.
    from _pytest.outcomes import Failed
else:
    Failed = pytest.fail.Exception


class RequirementError(Failed):
    """The failure of a test whose requirement is absent."""

    # Keeps the module's path out of the one-line summaries, as pytest does for its own.
    __module__ = "builtins"


def require(reason: str | None, *, hardware: bool = False) -> None:
    """Go on if ``reason`` is None, else end the running test with that reason.

    The test is skipped. With STERNA_REQUIRE_ALL=1 it fails instead, unless ``hardware`` says
    that the absent thing belongs to hardware this machine cannot have. May also be called at
    the top of a test module, where it ends the whole module.
    """
    __tracebackhide__ = True
    if reason is None:
        return
    if options.require_all and not hardware:
        raise RequirementError(f"{reason} (STERNA_REQUIRE_ALL is set)", pytrace=False)
    pytest.skip(reason, allow_module_level=True)
