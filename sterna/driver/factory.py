"""What building a graph gives: code, graph and parameters, and executors of them."""

import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sterna.codegen.code import Code
from sterna.codegen.model_data import ModelData
from sterna.driver.export import export_library
from sterna.driver.kernel import KernelNotes
from sterna.driver.model_files import data_behind, expect_library, write_model_files
from sterna.driver.operator_module import Compiled, OperatorModule
from sterna.ir.module import IRModule
from sterna.relay.backend import Executor
from sterna.runtime import NDArray, PackedFunc, ndarray
from sterna.runtime.built_graph import BuiltGraph, pairs_of
from sterna.target import Target


@dataclass(frozen=True, slots=True)
class LinkedKernels(Compiled):
    """Kernels of a graph, with its parameters."""

    graph_json: str
    params: dict[str, NDArray]

    def find(self, name: str) -> int | PackedFunc | None:
        """A kernel, or what gives the parameters."""
        if name == "get_graph_params":
            return PackedFunc(lambda: pairs_of(self.params))
        return Compiled.find(self, name)


class LinkedModule(OperatorModule):
    """Kernels that carry the parameters of their graph, in memory and in files."""

    def export_library(
        self,
        file_name: str | os.PathLike[str],
        *,
        fcompile: Callable[..., Any] | None = None,
        addons: Sequence[str | os.PathLike[str]] | None = None,
        workspace_dir: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> Any:
        """Write kernels and parameters to one file; see Module.export_library."""
        own = self._implementation
        assert isinstance(own, LinkedKernels)
        data = ModelData(self.name, own.graph_json, own.params)
        return _export(self, data, file_name, fcompile, addons, workspace_dir, options)


@dataclass(frozen=True, slots=True)
class CompiledGraph(BuiltGraph):
    """What stands behind a factory's module."""

    lib: OperatorModule

    def bare(self) -> Any:
        """A factory of the same with its parameters yet to be set."""
        return GraphExecutorFactoryModule.over(replace(self, params={}, copies={}))


def check_name(mod_name: str) -> None:
    """Refuse what no symbol can be made of."""
    if not re.fullmatch(r"[A-Za-z_]\w*", mod_name, re.ASCII):
        raise ValueError(f"mod_name '{mod_name}' is no name: letters, digits and _ make one")


class GraphExecutorFactoryModule:
    """A built graph. lib["default"](dev) makes an executor; all of them share the parameters."""

    def __init__(
        self,
        code: Code,
        graph_json: str,
        params: Mapping[str, Any],
        mod_name: str,
        target: Target,
        ir_mod: IRModule | None = None,
        kernel_notes: Mapping[str, KernelNotes] | None = None,
        links_params: bool = False,
    ) -> None:
        check_name(mod_name)
        modules = {target: ir_mod or IRModule({})}
        arrays = {name: _as_array(value) for name, value in params.items()}
        if links_params:
            kernels = LinkedKernels(code, mod_name, modules, graph_json, arrays)
            lib: OperatorModule = LinkedModule.over(kernels)
        else:
            lib = OperatorModule.make(code, mod_name, modules)
        self._take(CompiledGraph(lib, graph_json, arrays, mod_name), kernel_notes or {})

    @classmethod
    def over(cls, built: CompiledGraph) -> "GraphExecutorFactoryModule":
        """A factory over what was built before."""
        made = cls.__new__(cls)
        made._take(built, {})
        return made

    def _take(self, built: CompiledGraph, kernel_notes: Mapping[str, KernelNotes]) -> None:
        self._built = built
        self.kernel_notes = dict(kernel_notes)
        self.module = built.module()

    # ---- its parts ----

    @property
    def lib(self) -> OperatorModule:
        """The kernels alone."""
        return self._built.lib

    @property
    def graph_json(self) -> str:
        """The graph, as the executor reads it."""
        return self._built.graph_json

    @property
    def params(self) -> dict[str, NDArray]:
        """The parameters by name; none if they are linked into the code."""
        return {} if isinstance(self.lib, LinkedModule) else dict(self._built.params)

    @property
    def libmod_name(self) -> str:
        """The name that it was built under, which is that of the function that makes executors."""
        return self._built.name

    @property
    def target(self) -> Target:
        """What it was built for."""
        return self._built.lib.target

    @property
    def executor(self) -> Executor:
        """How its kernels are called."""
        return Executor("graph", {"link-params": isinstance(self.lib, LinkedModule)})

    @property
    def ir_mod(self) -> IRModule:
        """What it was built from."""
        return self._built.lib.ir_module_by_target[self.target]

    def get_lib(self) -> OperatorModule:
        """The kernels alone."""
        return self.lib

    def get_graph_json(self) -> str:
        """The graph, as the executor reads it."""
        return self.graph_json

    def get_executor_config(self) -> str:
        """The graph, as the executor reads it."""
        return self.graph_json

    def get_params(self) -> dict[str, NDArray]:
        """The parameters by name."""
        return self.params

    def __iter__(self) -> Iterator[Any]:
        warnings.warn(
            "graph, lib, params = relay.build(...) is the old way: keep what build gives as it is, "
            'and make executors with lib["default"](dev)',
            DeprecationWarning,
            stacklevel=2,
        )
        return iter((self.graph_json, self.lib, self.params))

    # ---- its functions ----

    def __getitem__(self, name: str) -> PackedFunc:
        return self.module[name]

    def get_function(self, name: str, query_imports: bool = False) -> PackedFunc:
        """The function that makes executors, get_graph_json, ..., or a kernel."""
        return self.module.get_function(name, query_imports)

    # ---- in files ----

    def export_library(
        self,
        file_name: str | os.PathLike[str],
        *,
        fcompile: Callable[..., Any] | None = None,
        addons: Sequence[str | os.PathLike[str]] | None = None,
        workspace_dir: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> Any:
        """Write code, graph and parameters to one file; see Module.export_library."""
        data = ModelData(self.libmod_name, self.graph_json, dict(self._built.params))
        return _export(self.lib, data, file_name, fcompile, addons, workspace_dir, options)


def _export(
    lib: OperatorModule, data: ModelData, file_name: str | os.PathLike[str], fcompile: Any,
    addons: Any, workspace_dir: Any, options: dict[str, Any],
) -> Any:
    """Write kernels with a graph and its parameters to one file."""
    form = Path(file_name).suffix
    attach = None
    if data.is_large:
        expect_library(data, form, fcompile is None)
        attach = data_behind(data)

    def write(folder: Path, cc: str | None) -> list[Path]:
        return write_model_files(lib, data, folder, form, fcompile is None, cc)

    return export_library(
        lib, file_name, fcompile, addons, workspace_dir, write, attach, **options
    )


def _as_array(value: Any) -> NDArray:
    return value if isinstance(value, NDArray) else ndarray.array(value)
