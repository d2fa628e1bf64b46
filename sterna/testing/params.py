"""Parametrized fixtures, declared as module or class variables."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

ParameterSet = type(pytest.param(0))

# Groups that no fixture has been made for yet; the plugin takes them from here.
_new_groups: dict[str, Any] = {}
_group_numbers = itertools.count()


def parameter(
    *values: object,
    ids: Sequence[str] | None = None,
    by_dict: Mapping[str, object] | None = None,
) -> Any:
    """A fixture that takes each of the values in turn.

    Every test that takes the fixture, itself or through another fixture, runs once for each
    value; several parameters give every combination. ``by_dict`` gives the ids and values as a
    mapping. ::

        size = sterna.testing.parameter(1, 16, 256)

        def test_sum(size): ...
    """
    if by_dict is not None:
        if values or ids is not None:
            raise TypeError("parameter() takes either values and ids, or by_dict, not both")
        ids, values = [str(key) for key in by_dict], tuple(by_dict.values())
    _check_ids("parameter", len(values), ids)

    # In a class body the fixture becomes a method, so it must accept the instance.
    def fixture(*_instance: object, request: pytest.FixtureRequest) -> object:
        return request.param

    return pytest.fixture(params=values, ids=ids)(fixture)


def parameters(*value_sets: Iterable[object], ids: Sequence[str] | None = None) -> list[Any]:
    """Several fixtures whose values change together.

    Each value set holds one value for each fixture, and a test runs once for each value set.
    Needs the plugin ``sterna.testing.plugin``. ::

        size, dtype = sterna.testing.parameters((16, "float32"), (32, "float16"))
    """
    rows = [_as_row(value_set) for value_set in value_sets]
    _check_ids("parameters", len(rows), ids)
    width = len(rows[0].values)
    for index, row in enumerate(rows):
        if len(row.values) != width:
            raise ValueError(
                f"parameters() value set {index} has {len(row.values)} values where the first "
                f"has {width}: {tuple(row.values)!r}"
            )

    # The fixtures share one hidden fixture that holds the whole row. pytest finds fixtures by
    # name in modules, so the plugin has to hand it this one before it collects their users.
    name = f"_sterna_parameters_{next(_group_numbers)}"

    @pytest.fixture(
        name=name,
        params=[pytest.param(tuple(row.values), marks=row.marks) for row in rows],
        ids=ids or [row.id or _row_id(row.values, index) for index, row in enumerate(rows)],
    )
    def whole_row(request: pytest.FixtureRequest) -> object:
        return request.param

    _new_groups[name] = whole_row
    return [_column(name, index) for index in range(width)]


def take_new_groups() -> dict[str, Any]:
    """The hidden fixtures made by ``parameters()`` since the last call, by name."""
    taken = dict(_new_groups)
    _new_groups.clear()
    return taken


def _column(group: str, index: int) -> Any:
    def fixture(*_instance: object, **values: tuple[object, ...]) -> object:
        return values[group][index]

    # The name of the fixture it takes is only known now.
    wanted = [
        inspect.Parameter("_instance", inspect.Parameter.VAR_POSITIONAL),
        inspect.Parameter(group, inspect.Parameter.KEYWORD_ONLY),
    ]
    fixture.__signature__ = inspect.Signature(wanted)  # type: ignore[attr-defined]
    return pytest.fixture(fixture)


def _as_row(value_set: object) -> Any:
    if isinstance(value_set, ParameterSet):
        return value_set
    if isinstance(value_set, Iterable) and not isinstance(value_set, str):
        return pytest.param(*value_set)
    raise TypeError(
        f"parameters() takes value sets, each a tuple with a value for each fixture, not "
        f"{value_set!r}; for a single fixture use parameter()"
    )


def _row_id(values: Sequence[object], index: int) -> str:
    return "-".join(_value_id(value, index) for value in values)


def _value_id(value: object, index: int) -> str:
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, (bool, int, float, complex)):
        return str(value)
    name = getattr(value, "__name__", None)
    return name if isinstance(name, str) else f"{type(value).__name__}{index}"


def _check_ids(function: str, count: int, ids: Sequence[str] | None) -> None:
    if count == 0:
        raise ValueError(f"{function}() needs at least one value")
    if ids is not None and len(ids) != count:
        raise ValueError(f"{function}() got {count} values but {len(ids)} ids")
