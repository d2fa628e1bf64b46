"""Graph executor factory: a graph with its kernels and parameters in memory makes executors."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sterna.runtime import _core
from sterna.runtime._core import PackedFunc
from sterna.runtime.device import REMOTE_DEVICES, Device
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
    copies: dict[tuple[str, Device], NDArray] = field(default_factory=dict, repr=False)
    """The parameters on other devices, which all executors there share."""

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
        """An executor over the parameters, which are copied once to a GPU and else not at all."""
        executor = create_executor(self.graph_json, self.lib, devices)
        executor["give_params"](pairs_of(self.params_on(devices)))
        return executor

    def params_on(self, devices: Sequence[Device]) -> Mapping[str, NDArray]:
        """The parameters where executors on these devices read them."""
        gpus = {d.device_type: d for d in devices if 1 < d.device_type < REMOTE_DEVICES}
        if not gpus:
            return self.params
        kinds = self._kinds()
        homes = {name: gpus.get(kinds.get(name, 0)) for name in self.params}
        return {
            name: array if (home := homes[name]) is None else self._copy(name, array, home)
            for name, array in self.params.items()
        }

    def _kinds(self) -> dict[str, int]:
        """The kinds of devices that the graph's nodes lie on, by name."""
        graph = json.loads(self.graph_json)
        kinds = graph["attrs"]["device_index"][1]
        return {
            node["name"]: kinds[entry]
            for node, entry in zip(graph["nodes"], graph["node_row_ptr"], strict=False)
            if node["op"] == "null"
        }

    def _copy(self, name: str, array: NDArray, home: Device) -> NDArray:
        if (name, home) not in self.copies:
            self.copies[name, home] = array.copyto(home)
        return self.copies[name, home]

    def bare(self) -> Any:
        """A module over the same with its parameters yet to be set."""
        return replace(self, params={}, copies={}).module()


def pairs_of(params: Mapping[str, NDArray]) -> list[list[str | NDArray]]:
    """Names and arrays, as functions take them."""
    return [[name, array] for name, array in params.items()]
