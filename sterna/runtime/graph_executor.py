"""The graph executor: runs a compiled graph, node by node."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from sterna.runtime import ndarray
from sterna.runtime._core import PackedFunc
from sterna.runtime.device import REMOTE_DEVICES, Device
from sterna.runtime.module import Module
from sterna.runtime.ndarray import NDArray
from sterna.runtime.timing import BenchmarkResult, make_evaluator
from sterna.support.dtype import DataType

GPU_REPEAT_MS = 500


def create(graph_json_str: str, libmod: Module, device: Device | Sequence[Device]) -> "GraphModule":
    """An executor of a graph whose functions are in a module.

    Its parameters are yet to be set, unless they are linked into the module.
    """
    made = create_executor(graph_json_str, libmod, device)
    linked = libmod._linked_params() if libmod.home is None else []
    if linked:
        made["give_params"](linked)
    return GraphModule(made)


def create_executor(
    graph_json_str: str, libmod: Module, device: Device | Sequence[Device]
) -> Module:
    """The same as a module of functions."""
    if not isinstance(graph_json_str, str):
        raise ValueError(f"a graph is JSON text, not {type(graph_json_str).__name__}")
    devices = [device] if isinstance(device, Device) else device
    made: Module = libmod._find_global("tvm.graph_executor.create")(
        graph_json_str, libmod, *devices
    )
    return made


def _shared(value: Any) -> Any:
    """A value with its memory as packed functions take it; NumPy exports no other elements."""
    is_other = isinstance(value, np.ndarray) and value.dtype.isbuiltin != 1
    return ndarray.numpyasarray(value) if is_other else value


def _named(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


class GraphModule:
    """A compiled model that runs: set inputs, run, get outputs.

    One thread at a time may use it; for more threads make more of them, they share parameters.
    """

    def __init__(self, module: Module) -> None:
        if not isinstance(module, Module) or not module.implements_function("set_input"):
            raise TypeError(
                f"expected an executor, got {module!r}; a built or loaded library makes one: "
                'GraphModule(lib["default"](dev))'
            )
        self.module = module
        self._set_input = module["set_input"]
        self._run = module["run"]
        self._get_output = module["get_output"]
        self._get_input = module["get_input"]
        self._types: dict[str | int, tuple[tuple[int, ...], DataType]] = {}
        self._home = module.home

    # ---- inputs ----

    def set_input(
        self, key: str | int | None = None, value: Any = None, **params: Any
    ) -> None:
        """Copy values into inputs, by name or number.

        NumPy's values are converted to the input's type. Names in params that the graph does not
        have are left out. Inputs that are named key or value are given by these names, too.
        """
        if isinstance(key, str | int):
            self._set(key, value)
        else:
            params |= _named(key=key, value=value)
        # The largest first: they are the most likely not to fit.
        for name in sorted(params, key=lambda n: -math.prod(np.shape(params[n]))):
            if self.get_input_index(name) >= 0:
                self._set(name, params[name])

    def _set(self, key: str | int, value: Any) -> None:
        array = value if isinstance(value, NDArray) else self._converted(key, value)
        self._set_input(key, array if self._home is None else self._carried(array, self._home))

    def _carried(self, array: Any, home: Device) -> NDArray:
        """An array on the machine that the executor is on."""
        machine = home.device_type // REMOTE_DEVICES
        if isinstance(array, NDArray) and array.device.device_type // REMOTE_DEVICES == machine:
            return array
        return ndarray.array(array, home)

    def _converted(self, key: str | int, value: Any) -> Any:
        if key not in self._types:
            array = self._get_input(key)
            self._types[key] = array.shape, array.dtype
        shape, dtype = self._types[key]
        values = np.asarray(value)
        if values.shape != shape:
            raise ValueError(f"input '{key}' has the shape {shape}, but {values.shape} was given")
        lies_well = values.flags.c_contiguous and values.flags.writeable
        if values.dtype.name == dtype and lies_well and not dtype.is_packed:
            return _shared(values)
        try:
            return ndarray.empty(shape, dtype).copyfrom(values)
        except ValueError as error:
            raise ValueError(f"input '{key}': {error}") from None

    def set_input_zero_copy(
        self, key: str | int | None = None, value: Any = None, **params: Any
    ) -> None:
        """Let runs read inputs from arrays of the caller's; None ends that for an input."""
        if isinstance(key, str | int):
            self.module["set_input_zero_copy"](key, _shared(value))
        else:
            params |= _named(key=key, value=value)
        for name, array in params.items():
            if self.get_input_index(name) >= 0:
                self.module["set_input_zero_copy"](name, _shared(array))

    def set_output_zero_copy(self, key: str | int, value: Any) -> None:
        """Let runs write an output into an array of the caller's; None ends that."""
        index = self.get_output_index(key) if isinstance(key, str) else key
        if index < 0:
            raise RuntimeError(f"Could not find '{key}' in graph's outputs")
        self.module["set_output_zero_copy"](index, _shared(value))

    def get_input(self, index: str | int, out: NDArray | None = None) -> NDArray:
        """An input's array, by name or number; that of a parameter cannot be written to."""
        array: NDArray = self._get_input(index)
        return array if out is None else array.copyto(out)

    def get_num_inputs(self) -> int:
        """How many inputs there are, parameters among them."""
        count: int = self.module["get_num_inputs"]()
        return count

    def get_input_index(self, name: str) -> int:
        """The number of an input, or -1."""
        index: int = self.module["get_input_index"](name)
        return index

    def get_input_info(self) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
        """Shapes and types, by name, of the inputs that are no parameters."""
        rows = self.module["get_input_info"]()
        return {n: tuple(shape) for n, shape, _ in rows}, {n: str(dtype) for n, _, dtype in rows}

    # ---- running ----

    def run(self, **input_dict: Any) -> None:
        """Run the graph, after setting inputs by name."""
        if input_dict:
            self.set_input(**input_dict)
        self._run()

    def get_num_outputs(self) -> int:
        """How many outputs there are."""
        count: int = self.module["get_num_outputs"]()
        return count

    def get_output_index(self, name: str) -> int:
        """The number of the output that a node of this name gives, or -1."""
        index: int = self.module["get_output_index"](name)
        return index

    def get_output(self, index: int, out: NDArray | None = None) -> NDArray:
        """An output. Without out it is the executor's own memory, which the next run overwrites."""
        if out is None:
            array: NDArray = self._get_output(index)
            return array
        if self._home is None:
            self._get_output(index, out)
            return out
        return self.get_output(index).copyto(out)

    # ---- parameters ----

    def load_params(self, params_bytes: bytes | bytearray) -> None:
        """Take parameters from what save_param_dict wrote; names not in the graph are left out."""
        self.module["load_params"](params_bytes)

    def share_params(self, other: "GraphModule", params_bytes: bytes | bytearray) -> None:
        """Use another executor's arrays for the parameters that are named in the bytes."""
        self.module["share_params"](other.module, params_bytes)

    def reset(self) -> None:
        """Make everything as it was at first: parameters the model's, other inputs zero."""
        self.module["reset"]()

    def __getitem__(self, key: str) -> PackedFunc:
        return self.module[key]

    # ---- timing ----

    def benchmark(
        self,
        device: Device,
        func_name: str = "run",
        repeat: int = 5,
        number: int = 5,
        min_repeat_ms: int | None = None,
        limit_zero_time_iterations: int = 100,
        end_to_end: bool = False,
        cooldown_interval_ms: int = 0,
        repeats_to_cooldown: int = 1,
        **kwargs: Any,
    ) -> BenchmarkResult:
        """Time one of the executor's functions, on inputs that are set before.

        end_to_end times setting the inputs and fetching the outputs as well.
        """
        if min_repeat_ms is None:
            min_repeat_ms = 0 if device.device_type == 1 else GPU_REPEAT_MS
        self.set_input(**kwargs)

        def whole() -> None:
            self.run(**kwargs)
            for index in range(self.get_num_outputs()):
                self.get_output(index).numpy()

        settings = (
            device, number, repeat, min_repeat_ms, limit_zero_time_iterations,
            cooldown_interval_ms, repeats_to_cooldown,
        )
        if end_to_end:
            return make_evaluator(PackedFunc(whole), *settings)()
        return self.module.time_evaluator(func_name, *settings)()
