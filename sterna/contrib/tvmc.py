"""A model from file to result in four functions, as classic programs call their command line.

    from tvm.driver import tvmc

    model = tvmc.load("model.onnx")
    tvmc.tune(model, target="llvm", tuning_records="records.db")
    package = tvmc.compile(model, target="llvm", package_path="model.so")
    print(tvmc.run(package, device="cpu"))
"""

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sterna.ir.module import IRModule
from sterna.ir.serialize import load_json, save_json
from sterna.ir.transform import PassContext
from sterna.model import CompiledModel
from sterna.model import compile as compile_model
from sterna.model import load as load_compiled
from sterna.model.bench import Timing, time_in_turns
from sterna.model.import_model import import_model
from sterna.relay.arrays import Array
from sterna.runtime import Device
from sterna.runtime import device as device_of
from sterna.runtime.params import load_param_dict, save_param_dict
from sterna.support.classic import classic_names
from sterna.support.table import show_seconds
from sterna.target import Target
from sterna.tune import Budget, Outcome, TuningDatabase
from sterna.tune import tune as tune_network

PACKAGE_SUFFIX = ".so"
TURNS = 5


class TVMCException(Exception):
    """What these functions say of a wrong argument."""


class TVMCModel:
    """A model that was imported: its graph and its weights."""

    def __init__(
        self, mod: IRModule | None = None, params: Mapping[str, Any] | None = None,
        model_path: str | os.PathLike[str] | None = None,
    ) -> None:
        """A graph with its weights, or the folder that save has written."""
        if (mod is None) == (model_path is None):
            raise TVMCException("a TVMCModel is made of a module, or of the path of a saved one")
        if model_path is not None:
            folder = Path(model_path)
            mod = load_json((folder / "model.json").read_text("utf-8"))
            params = load_param_dict((folder / "model.params").read_bytes())
        assert mod is not None
        self.mod, self.params = mod, dict(params or {})
        self._records: str | None = None

    def save(self, model_path: str | os.PathLike[str]) -> None:
        """Write the graph and its weights into a folder, which TVMCModel(model_path=...) reads."""
        folder = Path(model_path)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.json").write_text(save_json(self.mod), "utf-8")
        (folder / "model.params").write_bytes(save_param_dict(self.params))

    def default_tuning_records_path(self) -> str:
        """Where tune writes what it found when no file is named: one of this model's own."""
        if self._records is None:
            self._records = os.path.join(tempfile.mkdtemp(prefix="sterna-tvmc-"), "records.db")
        return self._records

    def summary(self, file: Any = None) -> None:
        """Print the graph."""
        print(self.mod, file=file)


class TVMCPackage:
    """A compiled model in a file."""

    def __init__(self, package_path: str | os.PathLike[str]) -> None:
        if not Path(package_path).is_file():
            raise TVMCException(f"there is no package at {os.fspath(package_path)}")
        self.package_path = os.fspath(package_path)


class TVMCResult:
    """What a run gave, and what it took."""

    def __init__(self, outputs: dict[str, Array], times: Timing) -> None:
        self.outputs, self.times = outputs, times

    def get_output(self, name: str) -> Array:
        """An output by its name: output_0, or the model's own."""
        if name not in self.outputs:
            raise TVMCException(f"there is no output {name}, only {', '.join(self.outputs)}")
        return self.outputs[name]

    def save(self, output_path: str | os.PathLike[str]) -> None:
        """Write the outputs into an .npz file."""
        np.savez(output_path, **self.outputs)  # type: ignore[arg-type]

    def format_times(self) -> str:
        """The median, the fastest and the slowest turn."""
        turns = self.times.turns
        return (
            f"a run takes {show_seconds(self.times.median)}; of {len(turns)} turns the fastest "
            f"{show_seconds(min(turns))}, the slowest {show_seconds(max(turns))}"
        )

    def __str__(self) -> str:
        shapes = [f"{name}: {one.dtype}{list(one.shape)}" for name, one in self.outputs.items()]
        return "\n".join([self.format_times(), *shapes])


def load(
    path: str | os.PathLike[str], model_format: str | None = None,
    shape_dict: Mapping[str, Any] | None = None, **kwargs: Any,
) -> TVMCModel:
    """A model from a file; its format is found by its content, model_format is not needed."""
    if kwargs:
        raise TVMCException(f"load has no option {', '.join(kwargs)}")
    mod, params = import_model(os.fspath(path), dict(shape_dict or {}), None)
    return TVMCModel(mod, params)


def tune(
    tvmc_model: TVMCModel, target: str, tuning_records: str | None = None,
    prior_records: str | None = None, enable_autoscheduler: bool = False, trials: int = 64,
    minutes: float = 10.0, **classic: Any,
) -> str:
    """Search faster kernels on this machine: the file of what was found.

    trials: for each layer. prior_records: records that the search begins with and adds to. Other
    options of the classic function (how it searches) have no meaning here and are ignored.
    """
    records = tuning_records or prior_records or tvmc_model.default_tuning_records_path()
    with PassContext(3):
        _: Outcome = tune_network(
            tvmc_model.mod, tvmc_model.params, Target(target), TuningDatabase(records),
            budget=Budget(trials, seconds=minutes * 60),
        )
    return records


def compile(
    tvmc_model: TVMCModel, target: str, tuning_records: str | None = None,
    package_path: str | os.PathLike[str] | None = None, opt_level: int = 3,
    cross: str | None = None, **classic: Any,
) -> TVMCPackage:
    """A model as a file that runs by itself: .so, or what else the path's suffix says.

    cross: the compiler that links it for another machine.
    """
    place = Path(package_path) if package_path is not None else (
        Path(tempfile.mkdtemp(prefix="sterna-tvmc-")) / f"model{PACKAGE_SUFFIX}"
    )
    made = compile_model(
        tvmc_model.mod, target, params=tvmc_model.params, opt_level=opt_level, tuned=tuning_records
    )
    made.export(place, **({"cc": cross} if cross else {}))
    return TVMCPackage(place)


def run(
    tvmc_package: TVMCPackage, device: str = "cpu", inputs: Mapping[str, Any] | None = None,
    fill_mode: str = "random", repeat: int = TURNS, number: int = 10, **classic: Any,
) -> TVMCResult:
    """Run a package, on random numbers where none are given; what it gave and what it took.

    repeat: turns that are timed. fill_mode: random, zeros or ones.
    """
    model = load_compiled(tvmc_package.package_path, _device(device))
    if not isinstance(model, CompiledModel):
        raise TVMCException(f"{tvmc_package.package_path} has open shapes; sterna.load runs it")
    given = {**_filled(model, fill_mode), **(inputs or {})}
    values = model.run(given)
    times = time_in_turns({"run": lambda: model.run(given)}, max(1, repeat), 0.05)
    return TVMCResult({f"output_{i}": value for i, value in enumerate(values.values())},
                      times["run"])


def _device(name: str) -> Device:
    if name not in ("cpu", "cuda", "opencl"):
        raise TVMCException(f"device is cpu, cuda or opencl, not {name!r}")
    return device_of(name, 0)


def _filled(model: CompiledModel, mode: str) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    makers: dict[str, Callable[[Any], Any]] = {
        "random": rng.random, "zeros": np.zeros, "ones": np.ones,
    }
    if mode not in makers:
        raise TVMCException(f"fill_mode is {', '.join(makers)}, not {mode!r}")
    return {spec.name: np.asarray(makers[mode](spec.shape)).astype(spec.dtype)
            for spec in model.inputs}


__getattr__ = classic_names(__name__)
