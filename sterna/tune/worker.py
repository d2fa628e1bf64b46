"""A process that builds and times networks for the tuner: a crash or a hang costs this process.

A message is a line of JSON on its input, and so is the answer on its output. The first names the
folder that describes the network; each that follows asks for one comparison.
"""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from sterna.ir.module import IRModule
from sterna.ir.serialize import load_json, save_json
from sterna.relay.arrays import Array, to_numpy
from sterna.runtime import load_param_dict, save_param_dict, set_num_threads
from sterna.target import Target, register
from sterna.target.kind import registered
from sterna.tune.board import BoardBench
from sterna.tune.lines import LineProcess, ProcessEnded, ProcessSilent
from sterna.tune.measure import Bench, Measured, RemoteDevice, WrongResult
from sterna.tune.network import Answers
from sterna.tune.workers import Crashed, Hung, Workers, measured_of

_MODULE, _PARAMS, _INPUTS, _ABOUT = "module.json", "params.bin", "inputs.bin", "about.json"


def write_network(
    folder: Path, mod: IRModule, params: Mapping[str, Any], target: Target,
    inputs: Mapping[str, Array], opt_level: int = 3, threads: int | None = None,
    device: RemoteDevice | None = None, board: str | None = None,
) -> None:
    """Everything that a worker must know, as files; board: that it is firmware for."""
    (folder / _MODULE).write_text(save_json(mod), "utf-8")
    (folder / _PARAMS).write_bytes(save_param_dict(dict(params)))
    (folder / _INPUTS).write_bytes(save_param_dict(dict(inputs)))
    about = {"target": str(target), "opt_level": opt_level, "threads": threads,
             "targets": registered(), "board": board,
             "device": None if device is None else asdict(device)}
    (folder / _ABOUT).write_text(json.dumps(about), "utf-8")


class Comparing(Protocol):
    """A network that is built under answers and timed beside itself."""

    def compare(self, incumbent: Answers, challenger: Answers, seconds: float) -> Measured:
        """Both in turns."""


def read_comparing(folder: Path) -> Comparing:
    """The network that was written to a folder, for this machine, a device or a board."""
    board = _about(folder)["board"]
    if board is None:
        return read_network(folder)
    return BoardBench(_module(folder), _params(folder), read_target(folder), board,
                      read_inputs(folder), _about(folder)["opt_level"])


def read_network(folder: Path) -> Bench:
    """The network that was written to a folder, ready to be built."""
    target, inputs = read_target(folder), read_inputs(folder)
    about = _about(folder)
    device = None if about["device"] is None else RemoteDevice(**about["device"])
    return Bench(
        _module(folder), _params(folder), target, inputs, about["opt_level"], device
    )


def _module(folder: Path) -> IRModule:
    made: IRModule = load_json((folder / _MODULE).read_text("utf-8"))
    return made


def _params(folder: Path) -> dict[str, Any]:
    return dict(load_param_dict((folder / _PARAMS).read_bytes()))


def read_target(folder: Path) -> Target:
    """What the network of a folder is built for."""
    about = _about(folder)
    for module in about["targets"]:
        register(module)
    return Target(about["target"])


def read_inputs(folder: Path) -> dict[str, Array]:
    """What the network of a folder is run on, by as many threads as it says from here on."""
    about = _about(folder)
    if about["threads"] is not None:
        set_num_threads(about["threads"])
    return {name: to_numpy(array)
            for name, array in load_param_dict((folder / _INPUTS).read_bytes()).items()}


def _about(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / _ABOUT).read_text("utf-8"))
    return found


class Worker(Workers):
    """A process that times one comparison at a time; it is started anew after it failed."""

    def __init__(self, folder: Path) -> None:
        self.lines = LineProcess("sterna.tune.worker", str(folder))

    def compare(
        self, incumbent: Answers, challenger: Answers, seconds: float, timeout: float
    ) -> Measured:
        """Both in turns; raises TrialError."""
        request = {"incumbent": dict(incumbent), "challenger": dict(challenger), "seconds": seconds}
        try:
            return measured_of(self.lines.ask(request, timeout))
        except ProcessSilent as error:
            raise Hung(str(error)) from None
        except ProcessEnded as error:
            raise Crashed(str(error)) from None

    def refresh(self) -> None:
        """End the process; another one is started when it is asked again."""
        self.lines.close()

    def close(self) -> None:
        """End the process."""
        self.lines.close()


def serve() -> None:
    """Answer requests until there are no more."""
    output = sys.stdout.buffer
    sys.stdout = sys.stderr  # nothing else may get between the answers
    bench = read_comparing(Path(sys.argv[3]))
    for line in sys.stdin.buffer:
        output.write(json.dumps(_answer(bench, json.loads(line))).encode() + b"\n")
        output.flush()


def _answer(bench: Comparing, request: Mapping[str, Any]) -> dict[str, Any]:
    return answer_of(
        lambda: bench.compare(request["incumbent"], request["challenger"], request["seconds"])
    )


def answer_of(compare: Callable[[], Measured]) -> dict[str, Any]:
    """What a comparison gives, or how it failed, as plain values."""
    try:
        return asdict(compare())
    except WrongResult as error:
        return {"kind": "wrong", "error": str(error)}
    except Exception as error:
        return {"kind": "refused", "error": f"{type(error).__name__}: {error}"}
