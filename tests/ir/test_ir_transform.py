"""Passes, sequences of them, and the context that they run in."""

import logging
import threading
from dataclasses import dataclass
from typing import Any

import pytest

import sterna as tvm
from sterna.ir import IRModule, Node, const
from sterna.ir.transform import (
    ApplyPassToFunction,
    FunctionPass,
    ModulePass,
    Pass,
    PassContext,
    PrintIR,
    Sequential,
    find_pass,
    function_pass,
    module_pass,
    register_config,
    register_pass,
)


@dataclass(frozen=True)
class Limits:
    """What a test pass may do."""

    steps: int = 0
    explicit: bool = True


register_config("test.flag", bool, False, "a switch")
register_config("test.depth", int, 4, "a number")
register_config("test.names", list, [], "several names")
register_config("test.ratio", float, 0.5, "a share")
register_config("test.limits", Limits, Limits(), "several settings")


def appends(name: str, opt_level: int = 0, required: Any = None) -> Pass:
    """A pass that writes its name behind the names of those before it."""

    def append(mod: IRModule, context: PassContext) -> IRModule:
        return IRModule(mod.functions, {"ran": [*mod.attrs.get("ran", []), name]})

    return ModulePass(append, tvm.transform.PassInfo(opt_level, name, tuple(required or ())))


def ran(mod: IRModule) -> list[str]:
    return list(mod.attrs.get("ran", []))


# ---- the context ----


def test_the_current_context_is_the_innermost_one() -> None:
    assert PassContext.current().opt_level == 2
    with PassContext(opt_level=3) as outer:
        assert PassContext.current() is outer
        with PassContext(opt_level=0) as inner:
            assert PassContext.current() is inner
        assert PassContext.current() is outer
    assert PassContext.current().opt_level == 2


def test_each_thread_has_its_own_contexts() -> None:
    seen = []
    with PassContext(opt_level=3):
        thread = threading.Thread(target=lambda: seen.append(PassContext.current().opt_level))
        thread.start()
        thread.join()
    assert seen == [2]


def test_an_error_inside_leaves_the_context() -> None:
    before = PassContext.current()
    with pytest.raises(KeyError), PassContext(opt_level=3):
        raise KeyError
    assert PassContext.current() is before


def test_public_names() -> None:
    assert tvm.transform.PassContext is PassContext
    assert tvm.ir.transform.Sequential is Sequential
    assert tvm.instrument is tvm.ir.instrument


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"opt_level": "3"}, "opt_level must be an int, not str"),
        ({"disabled_pass": "FuseOps"}, "disabled_pass must be a list of the names of passes"),
        ({"required_pass": [1]}, "required_pass must be a list of the names of passes"),
        ({"instruments": [object()]}, "instruments must be a list of PassInstrument, not of obj"),
        ({"trace": 3}, "trace must be a function, not int"),
    ],
)
def test_a_context_refuses(arguments: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        PassContext(**arguments)


# ---- config ----


def test_config_values_and_defaults() -> None:
    context = PassContext(config={"test.flag": 1, "test.names": ("a", "b"), "test.ratio": 1})
    assert context.get_config("test.flag") is True
    assert context.get_config("test.names") == ["a", "b"]
    assert context.get_config("test.ratio") == 1.0
    assert context.get_config("test.depth") == 4
    assert context.config == {"test.flag": True, "test.names": ["a", "b"], "test.ratio": 1.0}


def test_config_of_several_settings() -> None:
    limits = PassContext(config={"test.limits": {"steps": 3}}).get_config("test.limits")
    assert limits == Limits(steps=3)
    assert PassContext(config={"test.limits": limits}).get_config("test.limits") is limits
    assert PassContext().get_config("test.limits") == Limits()


@pytest.mark.parametrize(
    ("config", "kind", "message"),
    [
        ({"test.flags": True}, AttributeError,
         r"no config option 'test.flags'; near it are: test.flag.*list_configs\(\) has them all"),
        ({"TEST.FLAG": True}, AttributeError, "near it are: test.flag"),
        ({"xyzzy": True}, AttributeError, r"no config option 'xyzzy'; PassContext.list_configs"),
        ({"test.flag": "yes"}, TypeError,
         "'test.flag' must be of type bool, not str .given: 'yes'."),
        ({"test.flag": 2}, TypeError, "'test.flag' must be of type bool, not int"),
        ({"test.depth": True}, TypeError, "'test.depth' must be of type int, not bool"),
        ({"test.depth": 1.0}, TypeError, "'test.depth' must be of type int, not float"),
        ({"test.names": "a"}, TypeError, "'test.names' must be of type list, not str"),
        ({"test.limits": 3}, TypeError, "'test.limits' must be of type dict or Limits, not int"),
        ({"test.limits": {"step": 3}}, AttributeError,
         "'test.limits' has no field 'step'; it has steps, explicit"),
        ({"test.limits": {"steps": "3"}}, TypeError,
         "'test.limits.steps' must be of type int, not str"),
    ],
)
def test_config_refuses(config: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        PassContext(config=config)


def test_list_configs() -> None:
    listed = PassContext.list_configs()
    assert listed["test.flag"] == {"type": "IntImm", "default": False, "help": "a switch"}
    assert listed["test.names"]["type"] == "Array"
    assert listed["test.limits"]["type"] == "Limits"


def test_a_key_has_one_meaning() -> None:
    register_config("test.flag", bool, False, "a switch")
    with pytest.raises(ValueError, match=r"'test\.flag' is registered already"):
        register_config("test.flag", int, 0, "something else")
    with pytest.raises(TypeError, match=r"'test\.bad' must be of type int, not str"):
        register_config("test.bad", int, "0", "its default does not fit")


# ---- sequences ----


def test_a_sequential_runs_what_the_context_enables() -> None:
    both = Sequential([appends("low", 1), appends("high", 3)])
    empty = IRModule()
    assert ran(both(empty)) == ["low"]
    assert ran(empty) == []
    with PassContext(opt_level=3):
        assert ran(both(empty)) == ["low", "high"]
    with PassContext(opt_level=0):
        assert both(empty) is empty
    with PassContext(opt_level=0, required_pass=["high"]):
        assert ran(both(empty)) == ["high"]
    with PassContext(opt_level=3, disabled_pass=["low"]):
        assert ran(both(empty)) == ["high"]
    with PassContext(opt_level=3, required_pass=["low"], disabled_pass=["low"]):
        assert ran(both(empty)) == ["high"]


def test_a_pass_called_by_itself_always_runs() -> None:
    with PassContext(opt_level=0, disabled_pass=["high"]):
        assert ran(appends("high", 3)(IRModule())) == ["high"]


def test_sequences_nest() -> None:
    inner = Sequential([appends("b"), appends("c")], opt_level=3, name="inner")
    outer = Sequential([appends("a"), inner, appends("d")])
    assert ran(outer(IRModule())) == ["a", "d"]
    with PassContext(opt_level=3):
        assert ran(outer(IRModule())) == ["a", "b", "c", "d"]


def test_required_passes_run_first() -> None:
    register_pass("test.first", lambda: appends("test.first", 4))
    assert find_pass("test.first").info.opt_level == 4
    needs = appends("needs", 0, ["test.first"])
    assert ran(Sequential([needs])(IRModule())) == ["test.first", "needs"]
    again = appends("again", 0, ["needs"])
    assert ran(Sequential([again, needs])(IRModule())) == [
        "test.first", "needs", "again", "test.first", "needs",
    ]


def test_required_passes_that_cannot_be() -> None:
    with pytest.raises(ValueError, match=r"no pass 'test\.nowhere'; register_pass"):
        Sequential([appends("needs", 0, ["test.nowhere"])])(IRModule())
    circle = [appends("a", 0, ["b"]), appends("b", 0, ["a"])]
    with pytest.raises(ValueError, match="passes require each other: a -> b -> a"):
        Sequential(circle)(IRModule())


def test_a_sequential_refuses_what_is_no_pass() -> None:
    with pytest.raises(TypeError, match="made of passes, not of function"):
        Sequential([lambda mod: mod])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="required must be a list"):
        Sequential([], required="a")


# ---- making passes ----


def test_module_pass_of_a_function() -> None:
    @module_pass(opt_level=2)
    def drop(mod: IRModule, ctx: PassContext) -> IRModule:
        return IRModule({}, {"level": ctx.opt_level})

    assert isinstance(drop, ModulePass)
    assert (drop.info.name, drop.info.opt_level, drop.info.required) == ("drop", 2, ())
    with PassContext(opt_level=1):
        assert drop(IRModule()).attrs == {"level": 1}


def test_module_pass_of_a_class() -> None:
    @module_pass(opt_level=1, name="Rename", required=["x"])
    class Add:
        """Adds a function."""

        def __init__(self, name: str) -> None:
            self.name = name

        def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
            return IRModule({**mod.functions, self.name: const(1)})

    made: Any = Add("f")
    assert ModulePass in type(made).__mro__ and made.name == "f"
    assert (made.info.name, made.info.required) == ("Rename", ("x",))
    assert list(made(IRModule())) == ["f"]
    assert Add.__name__ == "Add" and Add.__doc__ == "Adds a function."
    with pytest.raises(AttributeError):
        _ = made.nothing


def test_function_pass_changes_functions_of_its_kind() -> None:
    mod = IRModule({"f": const(1), "g": const(2.0)}, {"kept": 1})

    @function_pass(opt_level=1, kind=tvm.ir.IntImm)
    def increase(func: Any, mod: IRModule, ctx: PassContext) -> Node:
        return const(func.value + 1)

    assert isinstance(increase, FunctionPass)
    after = increase(mod)
    assert isinstance(after["f"], tvm.ir.IntImm) and after["f"].value == 2
    assert after["g"] is mod["g"] and after.attrs == {"kept": 1}
    assert isinstance(mod["f"], tvm.ir.IntImm) and mod["f"].value == 1


def test_function_pass_of_a_class() -> None:
    @function_pass(opt_level=1, kind=tvm.ir.IntImm)
    class Increase:
        def __init__(self, by: int) -> None:
            self.by = by

        def transform_function(self, func: Any, mod: IRModule, ctx: PassContext) -> Node:
            return const(func.value + self.by)

    made: Any = Increase(5)
    after = made(IRModule({"f": const(1)}))["f"]
    assert isinstance(after, tvm.ir.IntImm) and after.value == 6


def test_an_unchanged_module_stays_the_same_object() -> None:
    keep = function_pass(lambda func, mod, ctx: func, opt_level=0, name="keep")
    mod = IRModule({"f": const(1)})
    assert keep(mod) is mod
    assert Sequential([keep, keep])(mod) is mod


def test_decorators_refuse() -> None:
    with pytest.raises(ValueError, match="a module pass needs an opt_level"):
        module_pass()
    with pytest.raises(ValueError, match="a function pass needs an opt_level"):
        function_pass()

    class Empty:
        pass

    with pytest.raises(TypeError, match="class Empty needs a method transform_function"):
        function_pass(Empty, opt_level=1)


def test_passes_refuse() -> None:
    keep = function_pass(lambda func, mod, ctx: func, opt_level=0, name="keep")
    with pytest.raises(TypeError, match="the pass keep takes an IRModule, not IntImm"):
        keep(const(1))
    forget = module_pass(lambda mod, ctx: None, opt_level=0, name="forget")
    with pytest.raises(TypeError, match="the pass forget gave NoneType instead of an IRModule"):
        forget(IRModule())
    lose = function_pass(lambda func, mod, ctx: None, opt_level=0, name="lose")
    with pytest.raises(TypeError, match="lose gave NoneType for the function 'f' instead of a No"):
        lose(IRModule({"f": const(1)}))
    with pytest.raises(NotImplementedError, match="the pass nothing does nothing"):
        Pass(tvm.transform.PassInfo(0, "nothing"))(IRModule())


def test_passes_log_what_they_did(caplog: pytest.LogCaptureFixture) -> None:
    keep = function_pass(lambda func, mod, ctx: func, opt_level=0, name="keep")
    with caplog.at_level(logging.DEBUG, logger="sterna.transform"):
        Sequential([keep, appends("a")])(IRModule())
    first, second, third = caplog.messages
    assert first.startswith("keep: ") and first.endswith(" ms, unchanged")
    assert second.startswith("a: ") and second.endswith(" ms")
    assert third.startswith("sequential: ")


# ---- passes over any module ----


def test_print_ir_prints(capsys: pytest.CaptureFixture[str]) -> None:
    mod = IRModule({"f": const(7)})
    assert PrintIR("here")(mod) is mod
    assert capsys.readouterr().out == "PrintIR(here):\n7\n"


def test_apply_pass_to_function() -> None:
    increase = function_pass(
        lambda func, mod, ctx: const(func.value + 1), opt_level=0, name="increase"
    )
    mod = IRModule({"first": const(1), "second": const(1), "fir": const(1)})
    after = ApplyPassToFunction(increase, "fir.*t")(mod)
    assert [int(f) for f in after.functions.values()] == [2, 1, 1]  # type: ignore[call-overload]
    assert list(after) == ["first", "second", "fir"]
    assert ApplyPassToFunction(increase, "x")(mod) is mod
    with pytest.raises(ValueError, match="no function's name matches 'x'; there are: first, sec"):
        ApplyPassToFunction(increase, "x", True)(mod)
