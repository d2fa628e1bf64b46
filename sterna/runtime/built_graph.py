"""Graph executor factory: a graph with its kernels and parameters in memory makes executors."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sterna.runtime import _core
from sterna.runtime._core import PackedFunc
from sterna.runtime.device import Device
from sterna.runtime.graph_executor import create_executor
from sterna.runtime.module import Module
from sterna.runtime.ndarray import NDArray


@dataclass(frozen=True, slots=True)
class BuiltGraph:
    """What stands behind such a module."""

    lib: Module
    graph_json: str
    params: Mapping[str, NDArray]
    name: str

    def find(self, name: str) -> int | PackedFunc | None:
        """One of the functions that make executors and show what they are made from, or a kernel.

        They are those that the runtime gives to a model in a file.
        """
        made: dict[str, Callable[..., Any]] = {
            self.name: self.create,
            "debug_create": lambda _, *devices: self.create(*devices),
            "cuda_graph_create": self.create,
            "get_graph_json": lambda: self.graph_json,
            "get_graph_params": self.param_pairs,
            "remove_params": self.bare,
        }
        return PackedFunc(made[name]) if name in made else self.lib._get_function(name, False)

    def module(self) -> Module:
        """A module over it."""
        made: Module = _core.make_module(Module, self)
        return made

    def param_pairs(self) -> list[list[str | NDArray]]:
        """Names and arrays."""
        return pairs_of(self.params)

    def create(self, *devices: Device) -> Module:
        """An executor over the parameters, which are not copied."""
        executor = create_executor(self.graph_json, self.lib, devices)
        executor["give_params"](self.param_pairs())
        return executor

    def bare(self) -> Any:
        """A module over the same with its parameters yet to be set."""
        return replace(self, params={}).module()


def pairs_of(params: Mapping[str, NDArray]) -> list[list[str | NDArray]]:
    """Names and arrays, as functions take them."""
    return [[name, array] for name, array in params.items()]
