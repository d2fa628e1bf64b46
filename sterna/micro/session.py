"""A session with a board: its network as an executor of this machine's."""

import time
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from sterna.micro.host_driven import DrivenNetwork
from sterna.micro.platforms.network import Network, Tensor
from sterna.micro.project import ProjectTransport
from sterna.relay.arrays import from_numpy, to_numpy
from sterna.runtime import Device, Module, NDArray, PackedFunc, _core, device
from sterna.runtime.timing import GROWTH, BenchmarkResult, expect_no_preparation
from sterna.support.numpy_dtype import numpy_dtype


class SessionTerminatedError(RuntimeError):
    """The session is not open."""


class Session:
    """What a host_driven project does; the byte stream is open inside a with block.

    with micro.Session(project.transport()) as session:
        executor = AotModule(session.create_aot_executor())
    """

    def __init__(
        self,
        transport_context_manager: ProjectTransport,
        session_name: str = "micro-rpc",
        timeout_override: Any = None,
    ) -> None:
        """timeout_override: transport.TransportTimeouts to wait by, instead of the project's."""
        self._transport = transport_context_manager
        self._name = session_name
        self._timeouts = timeout_override
        self._board: BoardExecutor | None = None

    def __enter__(self) -> Self:
        network = self._transport.network
        self._transport.open()
        try:
            times = self._timeouts or self._transport.timeouts()
            seconds = float(times.session_established_timeout_sec or 60.0)
            self._board = BoardExecutor(DrivenNetwork(self._transport, network, seconds))
        except BaseException:
            self._transport.close()
            raise
        return self

    def __exit__(self, *reason: object) -> None:
        self._board = None
        self._transport.close()

    def __repr__(self) -> str:
        return f"Session({self._name})"

    @property
    def device(self) -> Device:
        """Where the arrays of inputs and outputs are: here, from where they go to the board."""
        return device("cpu", 0)

    def create_aot_executor(self) -> Module:
        """The network on the board, as AotModule takes it."""
        if self._board is None:
            raise SessionTerminatedError("the session is not open; use it in a with block")
        module: Module = _core.make_module(BoardModule, self._board)
        return module

    def get_system_lib(self) -> Module:
        """The same: the program on the board has no other functions."""
        return self.create_aot_executor()


class BoardExecutor:
    """The functions of an executor. Inputs wait here for a run, which sends those that changed."""

    def __init__(self, driven: DrivenNetwork) -> None:
        self.driven = driven
        self._inputs = [
            from_numpy(np.zeros(t.shape, numpy_dtype(t.dtype))) for t in self.network.inputs
        ]
        self._sent: list[bytes | None] = [None] * len(self._inputs)
        self._functions: dict[str, Callable[..., Any]] = {
            "set_input": self.set_input,
            "get_input": lambda key: self._inputs[self._input(key)],
            "get_num_inputs": lambda: len(self._inputs),
            "get_input_index": lambda name: _find(self.network.inputs, name),
            "get_input_info": self._input_info,
            "run": self.run,
            "get_output": self.get_output,
            "get_num_outputs": lambda: len(self.network.outputs),
            "get_output_index": lambda name: _find(self.network.outputs, name),
        }

    @property
    def network(self) -> Network:
        """What the board runs."""
        return self.driven.network

    def find(self, name: str) -> PackedFunc | None:
        """A function by its name."""
        function = self._functions.get(name)
        return None if function is None else PackedFunc(function)

    def set_input(self, key: str | int, value: NDArray) -> None:
        """Keep values for an input."""
        self._inputs[self._input(key)].copyfrom(value)

    def send_inputs(self) -> None:
        """Bring to the board what changed."""
        for place, (tensor, array) in enumerate(
            zip(self.network.inputs, self._inputs, strict=True)
        ):
            values = to_numpy(array)
            data = values.tobytes()
            if data != self._sent[place]:
                self._sent[place] = None
                self.driven.set_input(tensor.name, values)
                self._sent[place] = data

    def run(self) -> None:
        """Run on the board."""
        self.send_inputs()
        self.driven.run()

    def get_output(self, index: int, out: NDArray | None = None) -> NDArray:
        """Fetch an output."""
        count = len(self.network.outputs)
        if not 0 <= index < count:
            raise IndexError(f"there are {count} outputs; {index} is none of them")
        made = from_numpy(self.driven.get_output(index).copy())
        return made if out is None else made.copyto(out)

    def _input(self, key: str | int) -> int:
        names = [tensor.name for tensor in self.network.inputs]
        place = names.index(key) if key in names else key
        if not isinstance(place, int) or not 0 <= place < len(names):
            raise ValueError(f"the network has no input '{key}'; it has {', '.join(names)}")
        return place

    def _input_info(self) -> list[Any]:
        return [[t.name, list(t.shape), t.dtype] for t in self.network.inputs]


def _find(tensors: Sequence[Tensor], name: str) -> int:
    names = [tensor.name for tensor in tensors]
    return names.index(name) if name in names else -1


class BoardModule(Module):
    """The network on a board."""

    __slots__ = ()

    def time_evaluator(
        self,
        func_name: str,
        dev: Device,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: int = 0,
        limit_zero_time_iterations: int = 100,
        cooldown_interval_ms: int = 0,
        repeats_to_cooldown: int = 1,
        cache_flush_bytes: int = 0,
        f_preproc: str = "",
    ) -> Callable[..., BenchmarkResult]:
        """A function that times runs by the board's own clock, after one that is not counted."""
        expect_no_preparation(cache_flush_bytes, f_preproc, "on a board")
        if func_name != "run":
            raise ValueError(f"the board's clock times 'run', not '{func_name}'")
        board: BoardExecutor = self._implementation

        def evaluate() -> BenchmarkResult:
            board.run()
            calls, results = number, []
            for done in range(1, repeat + 1):
                seconds, tries = board.driven.time(calls), 1
                while seconds * calls * 1e3 < min_repeat_ms and tries < limit_zero_time_iterations:
                    calls = max(int(min_repeat_ms * 1e-3 / seconds), int(calls * GROWTH)) + 1
                    seconds, tries = board.driven.time(calls), tries + 1
                results.append(seconds)
                if cooldown_interval_ms and done % repeats_to_cooldown == 0:
                    time.sleep(cooldown_interval_ms * 1e-3)
            return BenchmarkResult(results)

        return evaluate
