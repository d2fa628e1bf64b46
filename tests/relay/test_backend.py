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
)  # fmt: skip
def test_what_is_refused(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        relay.backend.Executor(name, options)
