"""Models as they pass through tvmc: imported, compiled into a package, run."""

import os
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sterna.driver.files import pack
from sterna.ir.module import IRModule
from sterna.ir.serialize import load_json, save_json
from sterna.relay.arrays import Array
from sterna.runtime import BenchmarkResult
from sterna.runtime.params import load_param_dict, save_param_dict
from sterna.support.plain_tar import BrokenTarError, content_of, files_in, open_plain_tar
from sterna.support.write_aside import write_aside, write_text_aside

# What a package of the form "so" holds: code, the graph's JSON and its weights.
LIBRARY, GRAPH, PARAMS = "mod.so", "mod.json", "mod.params"
# What a package of the form "mlf" holds in any case.
METADATA = "metadata.json"


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
        params = save_param_dict(self.params)
        write_text_aside(folder / "model.json", save_json(self.mod))
        write_aside(folder / "model.params", lambda aside: aside.write_bytes(params))

    def default_tuning_records_path(self) -> str:
        """Where tune writes what it found when no file is named: one of this model's own."""
        if self._records is None:
            self._records = os.path.join(tempfile.mkdtemp(prefix="sterna-tvmc-"), "records.db")
        return self._records

    def summary(self, file: Any = None) -> None:
        """Print the graph."""
        print(self.mod, file=file)


class TVMCPackage:
    """A compiled model in a file.

    A package of the form "so" is an archive of mod.so, mod.json and mod.params, or a library that
    holds all of it; one of the form "mlf" is an archive in Model Library Format.
    """

    def __init__(self, package_path: str | os.PathLike[str]) -> None:
        if not Path(package_path).is_file():
            raise TVMCException(f"there is no package at {os.fspath(package_path)}")
        self.package_path = os.fspath(package_path)
        found = _members(Path(package_path))
        self.type = "mlf" if METADATA in found else "so"
        self.graph = found[GRAPH].decode("utf-8") if GRAPH in found else None
        self.params = found.get(PARAMS)
        self._library = found.get(LIBRARY)

    def library(self, folder: Path) -> Path:
        """The file of its code, which is unpacked into a folder if it is in an archive."""
        if self._library is None:
            return Path(self.package_path)
        path = folder / LIBRARY
        path.write_bytes(self._library)
        return path


def write_archive(
    path: Path, library: Path, graph: str | None, params: Mapping[str, Any]
) -> None:
    """A package of a file mod.so; graph: the JSON of what the graph executor runs."""
    parts = [library]
    if graph is not None:
        parts += [library.with_name(GRAPH), library.with_name(PARAMS)]
        parts[1].write_text(graph, "utf-8")
        parts[2].write_bytes(save_param_dict(params))
    write_aside(path, lambda aside: pack(aside, parts))


def _members(path: Path) -> dict[str, bytes]:
    """The files of a package that is an archive of ours; nothing for other files."""
    if not tarfile.is_tarfile(path):
        return {}
    try:
        with open_plain_tar(path) as archive:
            files = {name.removeprefix("./"): each for name, each in files_in(archive).items()}
            if METADATA in files:
                return {METADATA: b""}
            if LIBRARY not in files:
                raise TVMCException(f"{path} is no package: it has no {LIBRARY}")
            return {name: content_of(archive, files[name])
                    for name in (LIBRARY, GRAPH, PARAMS) if name in files}
    except BrokenTarError as error:
        raise TVMCException(f"{path} is no package: {error}") from None


class TVMCResult:
    """What a run gave, and what it took."""

    def __init__(self, outputs: dict[str, Array], times: BenchmarkResult) -> None:
        self.outputs, self.times = outputs, times

    def get_output(self, name: str) -> Array:
        """An output by its name: output_0, output_1, ..."""
        if name not in self.outputs:
            raise TVMCException(f"there is no output {name}, only {', '.join(self.outputs)}")
        return self.outputs[name]

    def save(self, output_path: str | os.PathLike[str]) -> None:
        """Write the outputs into an .npz file."""
        given = os.fspath(output_path)
        path = Path(given if given.endswith(".npz") else f"{given}.npz")
        write_aside(path, lambda aside: _save(aside, self.outputs))

    def format_times(self) -> str:
        """The mean, the median, the slowest and the fastest repeat, and their deviation."""
        return str(self.times)

    def __str__(self) -> str:
        return f"{self.format_times()}\nOutput Names:\n {list(self.outputs)}"


def _save(path: Path, arrays: Mapping[str, Array]) -> None:
    with open(path, "wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
