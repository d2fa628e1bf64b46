"""The pytest plugin behind ``sterna.testing``.

Load it with ``pytest_plugins = ["sterna.testing.plugin"]`` in the top-level conftest.py. A test
that takes ``target`` or ``dev`` then runs once for each enabled target, and the marks of
``sterna.testing`` take effect.
"""

from __future__ import annotations

import types
from collections.abc import Generator
from typing import Any

import pytest

from sterna import runtime
from sterna.testing.features import FEATURES, Feature, feature_of_target
from sterna.testing.fixtures import CacheLifetimes
from sterna.testing.params import ParameterSet, take_new_groups
from sterna.testing.rule import RequirementError
from sterna.testing.targets import (
    DEFAULT_TARGETS,
    enabled_targets,
    listed_targets,
    matches_target,
    needs_own_hardware,
    target_absence,
    target_kind,
)

_MARKERS = {
    "sterna_requires(feature, support)": "the test needs this feature.",
    "sterna_targets(*targets)": "the targets that the test runs on.",
    "sterna_exclude_targets(*targets)": "the test is skipped on these targets.",
    "sterna_known_failing_targets(*targets)": "the test is expected to fail on these targets.",
}

_lifetimes = pytest.StashKey[CacheLifetimes]()


class _NoTarget:
    """Stands in for the target of a test when no target is enabled."""

    def feature(self) -> Feature:
        names = listed_targets() or DEFAULT_TARGETS
        reason = "; ".join(f"{name}: {target_absence(name)}" for name in names)
        hardware = all(needs_own_hardware(target_kind(name)) for name in names)
        return Feature("target", "an enabled target", lambda: reason, hardware=hardware)


@pytest.fixture
def dev(target: object) -> runtime.Device:
    """The device of the test's target."""
    feature_of_target(target).require()
    return runtime.device(target_kind(target))


def pytest_configure(config: pytest.Config) -> None:
    for marker, meaning in _MARKERS.items():
        config.addinivalue_line("markers", f"{marker}: {meaning}")
    for feature in FEATURES.values():
        config.addinivalue_line("markers", f"{feature.name}: the test uses {feature.long_name}.")


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    try:
        targets = [name for name, _ in enabled_targets()]
    except (ValueError, RuntimeError, UserWarning) as error:
        raise pytest.UsageError(str(error)) from error
    params: list[Any] = [*targets] or [pytest.param(_NoTarget(), id="no_target")]

    # A fixture, so that test modules and conftest.py files can put their own in its place.
    @pytest.fixture(scope="session", params=params)
    def target(request: pytest.FixtureRequest) -> Any:
        """Each enabled target in turn."""
        return request.param

    _register_fixtures(session.config, "sterna_target", {"target": target})


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Collector) -> None:
    for name, fixture in take_new_groups().items():
        _register_fixtures(collector.config, name, {name: fixture})


def _register_fixtures(config: pytest.Config, name: str, fixtures: dict[str, Any]) -> None:
    module = types.ModuleType(name)
    module.__dict__.update(fixtures)
    config.pluginmanager.register(module, name)


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    mark = metafunc.definition.get_closest_marker("sterna_targets")
    if mark is None or "target" not in metafunc.fixturenames:
        return
    for value in mark.args:
        target = value.values[0] if isinstance(value, ParameterSet) else value
        try:
            target_absence(target)
        except (TypeError, ValueError) as error:
            raise type(error)(
                f"parametrize_targets on {metafunc.definition.name} lists {target!r}, which is "
                f"not a known target: {error}"
            ) from error
    # A mark takes precedence over the fixture; metafunc.parametrize() would clash with it.
    metafunc.definition.add_marker(pytest.mark.parametrize("target", mark.args, scope="session"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        callspec = getattr(item, "callspec", None)
        if callspec is not None and "target" in callspec.params:
            _mark_for_target(item, callspec.params["target"])


def _mark_for_target(item: pytest.Item, target: object) -> None:
    if isinstance(target, _NoTarget):
        marks = target.feature().marks()
    else:
        try:
            target_absence(target)
        except (TypeError, ValueError):
            # A test may have a parameter called `target` that has nothing to do with compilation.
            return
        marks = feature_of_target(target).marks()
        if _is_listed(item, "sterna_exclude_targets", target):
            marks.append(pytest.mark.skip(reason=f"excluded on target {str(target)!r}"))
        if _is_listed(item, "sterna_known_failing_targets", target):
            marks.append(pytest.mark.xfail(reason=f"known to fail on target {str(target)!r}"))
    for mark in marks:
        item.add_marker(mark)


def _is_listed(item: pytest.Item, marker: str, target: object) -> bool:
    marks = item.iter_markers(marker)
    return any(matches_target(target, pattern) for mark in marks for pattern in mark.args)


def pytest_collection_finish(session: pytest.Session) -> None:
    session.config.stash[_lifetimes] = CacheLifetimes(
        getattr(item, "fixturenames", ()) for item in session.items
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    needs = [mark.args for mark in item.iter_markers("sterna_requires")]
    # Lacking hardware always skips, so it is looked at before what may make the test fail.
    for feature, support in sorted(needs, key=lambda need: not need[0].hardware):
        feature.require(support)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    try:
        yield
    finally:
        lifetimes = item.config.stash.get(_lifetimes, None)
        if lifetimes is not None:
            lifetimes.finish(getattr(item, "fixturenames", ()))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.excinfo is not None and call.excinfo.errisinstance(RequirementError):
        # An xfail mark would turn the missing requirement into an expected failure.
        report.outcome = "failed"
        report.__dict__.pop("wasxfail", None)
    return report
