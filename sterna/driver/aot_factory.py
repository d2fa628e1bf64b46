"""What building a network as one function gives."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from sterna.driver.aot import (
    Built,
    MemoryReport,
    Program,
    build_program,
    build_with_runtime,
)
from sterna.driver.aot_options import Options
from sterna.driver.export import export_library
from sterna.driver.factory import GraphExecutorFactoryModule, check_name
from sterna.driver.operator_module import OperatorModule
from sterna.ir.module import IRModule
from sterna.lowering.entry import kernels_called
from sterna.lowering.graph import Graph
from sterna.relay.expr import Function
from sterna.runtime import NDArray, PackedFunc
from sterna.target import Target


class AOTExecutorFactoryModule(GraphExecutorFactoryModule):
    """A network as one function, over the runtime. lib["default"](dev) makes what runs it."""

    def __init__(self, built: Built, name: str, target: Target, ir_mod: IRModule) -> None:
        graph = built.graph
        super().__init__(
            built.code, graph.to_json(), graph.params, name, target, ir_mod, built.notes
        )
        self._report = built.report

    def memory_report(self) -> MemoryReport:
        """What memory it takes."""
        return self._report


class AOTProgram:
    """A network in C that needs no runtime: its source, its header, and what memory it takes."""

    def __init__(
        self, params: dict[str, NDArray], name: str, target: Target,
        program: Program, ir_mod: IRModule,
    ) -> None:
        self.lib = OperatorModule.make(program.code, name, {target: ir_mod})
        self.params = params
        self.libmod_name = name
        self.target = target
        self.ir_mod = ir_mod
        self.interface = program.code.interface
        self.inputs = program.entry.inputs
        self.outputs = program.entry.outputs
        self.operator_workspaces = program.operator_workspaces
        self.kernels = kernels_called(program.entry.function)
        """In the order of their calls, with the layers of the model that each computes."""
        self.memory_map = program.memory_map
        """What lies where in the arena while which of them run."""
        self._code = program.code
        self._report = program.report

    @property
    def has_header(self) -> bool:
        """Whether it has a C interface."""
        return self._code.has_header

    def get_lib(self) -> OperatorModule:
        """The code."""
        return self.lib

    def get_params(self) -> dict[str, NDArray]:
        """The constants, which the code holds."""
        return self.params

    def get_c_header(self) -> str:
        """The text of tvmgen_<name>.h."""
        return self._code.header

    def memory_report(self) -> MemoryReport:
        """What memory it takes."""
        return self._report

    def __getitem__(self, name: str) -> PackedFunc:
        raise ValueError(
            f"{self.libmod_name} is C for a program without a runtime; compile it into one, or "
            'build it with Runtime("cpp") to run it here'
        )

    def export_library(
        self,
        file_name: str | os.PathLike[str],
        *,
        fcompile: Callable[..., Any] | None = None,
        addons: Sequence[str | os.PathLike[str]] | None = None,
        workspace_dir: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> Any:
        """Write the code to a file; see Module.export_library."""
        return export_library(self.lib, file_name, fcompile, addons, workspace_dir, **options)


def build_aot(
    functions: dict[str, Function], graph: Graph, name: str, target: Target, options: Options,
    ir_mod: IRModule,
) -> AOTExecutorFactoryModule | AOTProgram:
    """A network as one function, with the runtime around it or without one."""
    check_name(name)
    if options.runtime == "crt":
        # Constants that are not linked are inputs.
        linked = graph if options.links_params else replace(graph, params={})
        program = build_program(functions, linked, name, target, options)
        return AOTProgram(graph.params, name, target, program, ir_mod)
    built = build_with_runtime(functions, graph, name, target, options)
    return AOTExecutorFactoryModule(built, name, target, ir_mod)
