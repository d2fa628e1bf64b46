"""Executors and runtimes: names and options are checked."""

import pytest

from sterna import relay


def test_names_and_options() -> None:
    aot = relay.backend.Executor("aot", {"unpacked-api": True, "interface-api": "c"})
    assert aot["unpacked-api"] is True and "interface-api" in aot and aot.name == "aot"
    assert "workspace-byte-alignment" not in aot
    assert aot == relay.backend.Executor("aot", {"interface-api": "c", "unpacked-api": 1})
    assert aot != relay.backend.Executor("graph")
    assert relay.backend.Executor.list_registered() == ["graph", "aot"]
    options = relay.backend.Runtime.list_registered_options("crt")
    assert options == {"system-lib": "runtime.BoxBool"}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("woof", {}, 'Executor "woof" is not defined'),
        ("graph", {"woof": 1}, 'Attribute "woof" is not available on this Executor'),
        (
            "aot", {"interface-api": True},
            'Attribute "interface-api" should have type "runtime.String" but instead found '
            '"runtime.BoxBool"',
        ),
    ],
)
def test_what_is_refused(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        relay.backend.Executor(name, options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"woof": 1}, 'Attribute "woof" is not available on this Runtime'),
        (
            {"system-lib": "yes"},
            'Attribute "system-lib" should have type "runtime.BoxBool" but instead found '
            '"runtime.String"',
        ),
    ],
)
def test_what_runtimes_refuse(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        relay.backend.Runtime("crt", options)
    with pytest.raises(ValueError, match='Runtime "woof" is not defined'):
        relay.backend.Runtime("woof")


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("link-params", "no", "BoxBool"),
        ("unpacked-api", "yes", "BoxBool"),
        ("workspace-byte-alignment", "16", "BoxInt"),
        ("constant-byte-alignment", True, "BoxInt"),
        ("interface-api", 1, "String"),
    ],
)
def test_types_of_options(key: str, value: object, kind: str) -> None:
    with pytest.raises(ValueError, match=f'"{key}" should have type "runtime.{kind}" but instead'):
        relay.backend.Executor("aot", {key: value})


def test_the_options_are_listed() -> None:
    listed = relay.backend.Executor.list_registered_options("aot")
    assert listed == {
        "link-params": "runtime.BoxBool", "unpacked-api": "runtime.BoxBool",
        "interface-api": "runtime.String", "workspace-byte-alignment": "runtime.BoxInt",
        "constant-byte-alignment": "runtime.BoxInt",
    }
    assert relay.backend.Executor.list_registered_options("graph") == {
        "link-params": "runtime.BoxBool"
    }
    assert relay.backend.Executor("aot")["link-params"] is True
    assert relay.backend.Executor("graph")["link-params"] is False
