"""From a model to a package, for tvmc."""

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sterna.contrib.cc import cross_compile
from sterna.contrib.tvmc.model import (
    LIBRARY,
    TVMCException,
    TVMCModel,
    TVMCPackage,
    write_archive,
)
from sterna.driver import relay_build
from sterna.driver.factory import GraphExecutorFactoryModule
from sterna.ir import config
from sterna.ir.module import IRModule
from sterna.ir.transform import PassContext, Sequential
from sterna.micro import export_model_library_format
from sterna.model.stages import Stages
from sterna.relay import transform
from sterna.relay.backend import Executor, Runtime
from sterna.schedule.config import ANSWERS
from sterna.support.write_aside import write_text_aside
from sterna.target import Target
from sterna.tune import TuningDatabase

PACKAGE = "module.tar"
FORMS = ("so", "mlf")
# Operators that follow a desired layout where none are named.
LAYOUT_OPERATORS = ("nn.conv2d", "nn.conv2d_transpose", "qnn.conv2d")


def compile_model(
    tvmc_model: TVMCModel, target: str | Target, opt_level: int = 3,
    executor: Executor | None = None, runtime: Runtime | None = None,
    tuning_records: str | os.PathLike[str] | None = None,
    package_path: str | os.PathLike[str] | None = None, cross: Any = None,
    cross_options: str | Sequence[str] | None = None, output_format: str = "so",
    dump_code: str | Sequence[str] | None = None, target_host: str | None = None,
    desired_layout: str | None = None, desired_layout_ops: Sequence[str] | None = None,
    disabled_pass: str | Sequence[str] | None = None,
    pass_context_configs: Sequence[str] | Mapping[str, Any] | None = None,
    additional_target_options: Mapping[str, Mapping[str, Any]] | None = None,
    mod_name: str = "default", mixed_precision: bool = False,
    mixed_precision_ops: Sequence[str] | None = None,
    mixed_precision_calculation_type: str = "float16", instruments: Sequence[Any] | None = None,
) -> TVMCPackage:
    """A model as a package.

    package_path: an archive of code, graph and weights; with a name in .so, .o, .a or .c, one file
    that holds all of it. output_format: "so", or "mlf", an archive for microcontrollers. cross: the
    compiler that links it for another machine. dump_code: relay, tir, or what a module's get_source
    takes (ll, asm, c), each written beside the package.
    """
    if output_format not in FORMS:
        raise TVMCException(f"output_format is {' or '.join(FORMS)}, not {output_format!r}")
    wanted = target_with(target, additional_target_options or {}, target_host)
    settings = _settings(pass_context_configs)
    if tuning_records is not None:
        found = TuningDatabase(Path(tuning_records), read_only=True).answers(wanted)
        settings[ANSWERS] = found | settings.get(ANSWERS, {})
    path = Path(package_path) if package_path is not None else (
        Path(tempfile.mkdtemp(prefix="sterna-tvmc-")) / PACKAGE
    )
    mod = _converted(tvmc_model.mod, desired_layout, desired_layout_ops)
    if mixed_precision:
        mod = _narrowed(mod, mixed_precision_ops, mixed_precision_calculation_type)
    with PassContext(opt_level, disabled_pass=_words(disabled_pass), config=settings,
                     instruments=instruments):
        built = relay_build.build(
            mod, wanted, None, executor, runtime, params=tvmc_model.params, mod_name=mod_name,
        )
    if output_format == "mlf":
        export_model_library_format(built, path)
    else:
        _write(built, path, cross, cross_options)
    for form in _words(dump_code):
        text = _shown(form, built, mod, tvmc_model, wanted, opt_level)
        write_text_aside(f"{os.fspath(path)}.{form}", text)
    return TVMCPackage(path)


def target_with(
    target: str | Target, additional: Mapping[str, Mapping[str, Any]],
    host: str | Target | None = None,
) -> Target:
    """A target with its host and options by the name of its kind, as --target-llvm-mcpu gives them.
    """
    made = target if isinstance(target, Target) else Target(target)
    for kind, options in additional.items():
        if options and kind != made.kind.name:
            given = ", ".join(f"-{name}={value}" for name, value in options.items())
            raise TVMCException(
                f"{given} is for the target {kind}, but the model is compiled for {made.kind.name}"
            )
        words = [f"-{name}={value}" for name, value in options.items()]
        made = Target(" ".join([str(made), *words]), host=made.host) if words else made
    return made if host is None else made.with_host(Target(host))


def _write(
    built: Any, path: Path, cross: Any, cross_options: str | Sequence[str] | None
) -> None:
    """The file of a package."""
    options: dict[str, Any] = {} if cross is None else {"cc": cross}
    given = cross_options.split() if isinstance(cross_options, str) else list(cross_options or ())
    if given:
        options = {"fcompile": cross_compile(cross, options=given)} if cross is not None else {
            "options": given
        }
    if path.suffix != ".tar":
        built.export_library(path, **options)
        return
    with tempfile.TemporaryDirectory(prefix="sterna-tvmc-") as folder:
        library = Path(folder, LIBRARY)
        if not isinstance(built, GraphExecutorFactoryModule) or built.executor.name != "graph":
            built.export_library(library, **options)
            write_archive(path, library, None, {})
            return
        built.get_lib().export_library(library, **options)
        write_archive(path, library, built.get_graph_json(), built.get_params())


def _shown(
    form: str, built: Any, mod: IRModule, model: TVMCModel, target: Target, opt_level: int
) -> str:
    """What a model becomes, as text."""
    if form == "relay":
        return str(mod)
    if form == "tir":
        return Stages.of(mod, model.params, target, opt_level).text("tir")
    source: str = built.get_lib().get_source(form)
    return source


def _converted(
    mod: IRModule, layout: str | None, operators: Sequence[str] | None
) -> IRModule:
    if layout is None:
        if operators:
            raise TVMCException("desired_layout_ops are for a desired_layout; give it too")
        return mod
    wanted = {name: [layout, "default"] for name in operators or LAYOUT_OPERATORS}
    passes = Sequential([
        transform.RemoveUnusedFunctions(), transform.ConvertLayout(wanted), transform.FoldConstant()
    ])
    with PassContext(3):
        made: IRModule = passes(mod)
    return made


def _narrowed(mod: IRModule, operators: Sequence[str] | None, dtype: str) -> IRModule:
    if operators:
        raise TVMCException(
            "mixed_precision_ops: relay.op.register_mixed_precision_conversion says so of operators"
        )
    made: IRModule = Sequential([transform.InferType(), transform.ToMixedPrecision(dtype)])(mod)
    return made


def _words(given: str | Sequence[str] | None) -> list[str]:
    """Names from a list, or from a text in which commas stand between them."""
    if given is None:
        return []
    return [word.strip() for word in given.split(",")] if isinstance(given, str) else list(given)


def _settings(given: Sequence[str] | Mapping[str, Any] | None) -> dict[str, Any]:
    """The config of a PassContext: a dict, or texts as name=value."""
    if given is None or isinstance(given, Mapping):
        return dict(given or {})
    made: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise TVMCException(f"--pass-config {text}: it is name=value")
        made[name] = _value(name, value)
    return made


def _value(name: str, text: str) -> Any:
    """A text as the type that a setting has."""
    kind = config.find_key(name).type
    truths = {"1": True, "true": True, "0": False, "false": False}
    try:
        if kind is bool:
            return truths[text.lower()]
        return kind(text) if kind in (int, float, str) else text.split(",")
    except (KeyError, ValueError):
        raise TVMCException(f"--pass-config {name}={text}: {name} is {kind.__name__}") from None
