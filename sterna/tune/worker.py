"""A process that builds and times networks for the tuner: a crash or a hang costs this process.

A message is a line of JSON on its input, and so is the answer on its output. The first names the
folder that describes the network; each that follows asks for one comparison.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from sterna.ir.module import IRModule
from sterna.ir.serialize import load_json, save_json
from sterna.relay.arrays import Array
from sterna.runtime import load_param_dict, save_param_dict, set_num_threads
from sterna.target import Target, register
from sterna.target.kind import registered
from sterna.tune.lines import LineProcess, ProcessEnded, ProcessSilent
from sterna.tune.measure import Bench, Measured, RemoteDevice, Times, WrongResult
from sterna.tune.network import Answers, Questions

_MODULE, _PARAMS, _INPUTS, _ABOUT = "module.json", "params.bin", "inputs.npz", "about.json"


class TrialError(RuntimeError):
    """A trial gave no time; its text says why."""


class Crashed(TrialError):
    """The process ended."""


class Hung(TrialError):
    """The process did not answer in time."""


class Wrong(TrialError):
    """The build gave other numbers than the default."""


class Refused(TrialError):
    """The build could not be made."""


_KINDS: dict[str, type[TrialError]] = {"wrong": Wrong, "refused": Refused}


def write_network(
    folder: Path, mod: IRModule, params: Mapping[str, Any], target: Target,
    inputs: Mapping[str, Array], opt_level: int = 3, threads: int | None = None,
    device: RemoteDevice | None = None,
) -> None:
    """Everything that a worker must know, as files."""
    (folder / _MODULE).write_text(save_json(mod), "utf-8")
    (folder / _PARAMS).write_bytes(save_param_dict(dict(params)))
    np.savez(folder / _INPUTS, *inputs.values())
    about = {"target": str(target), "opt_level": opt_level, "threads": threads,
             "targets": registered(), "inputs": list(inputs),
             "device": None if device is None else asdict(device)}
    (folder / _ABOUT).write_text(json.dumps(about), "utf-8")


def read_network(folder: Path) -> Bench:
    """The network that was written to a folder, ready to be built."""
    about = json.loads((folder / _ABOUT).read_text("utf-8"))
    for module in about["targets"]:
        register(module)
    if about["threads"] is not None:
        set_num_threads(about["threads"])
    params = load_param_dict((folder / _PARAMS).read_bytes())
    with np.load(folder / _INPUTS, allow_pickle=False) as file:
        inputs = {name: file[f"arr_{place}"] for place, name in enumerate(about["inputs"])}
    mod = load_json((folder / _MODULE).read_text("utf-8"))
    device = None if about["device"] is None else RemoteDevice(**about["device"])
    return Bench(mod, params, Target(about["target"]), inputs, about["opt_level"], device)


class Worker:
    """A process that times one comparison at a time; it is started anew after it failed."""

    def __init__(self, folder: Path) -> None:
        self.lines = LineProcess("sterna.tune.worker", str(folder))

    def compare(
        self, incumbent: Answers, challenger: Answers, seconds: float, timeout: float
    ) -> Measured:
        """Both in turns; raises TrialError."""
        request = {"incumbent": dict(incumbent), "challenger": dict(challenger), "seconds": seconds}
        try:
            answer = self.lines.ask(request, timeout)
        except ProcessSilent as error:
            raise Hung(str(error)) from None
        except ProcessEnded as error:
            raise Crashed(str(error)) from None
        if "error" in answer:
            raise _KINDS[answer["kind"]](answer["error"])
        return _measured(answer)

    def close(self) -> None:
        """End the process."""
        self.lines.close()


def _measured(answer: Mapping[str, Any]) -> Measured:
    return Measured(
        {scope: Times(**times) for scope, times in answer["layers"].items()},
        Times(**answer["changed"]), Times(**answer["total"]), Questions(**answer["questions"]),
        answer["shares"],
    )


def serve() -> None:
    """Answer requests until there are no more."""
    output = sys.stdout.buffer
    sys.stdout = sys.stderr  # nothing else may get between the answers
    bench = read_network(Path(sys.argv[3]))
    for line in sys.stdin.buffer:
        output.write(json.dumps(_answer(bench, json.loads(line))).encode() + b"\n")
        output.flush()


def _answer(bench: Bench, request: Mapping[str, Any]) -> dict[str, Any]:
    try:
        found = bench.compare(request["incumbent"], request["challenger"], request["seconds"])
        return asdict(found)
    except WrongResult as error:
        return {"kind": "wrong", "error": str(error)}
    except Exception as error:
        return {"kind": "refused", "error": f"{type(error).__name__}: {error}"}
