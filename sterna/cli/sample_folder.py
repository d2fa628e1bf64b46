"""A folder of samples: arrays and pictures, read one after the other."""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sterna.cli.failures import UsageError
from sterna.cli.inputs import ARRAYS, load_arrays, load_picture
from sterna.model.arguments import TensorSpec
from sterna.model.images import SUFFIXES


class SampleFolder:
    """The files of a folder, in the order of their names, each of which is one sample."""

    def __init__(
        self, folder: str, specs: Sequence[TensorSpec], options: argparse.Namespace
    ) -> None:
        self.specs, self.options = specs, options
        if not Path(folder).is_dir():
            raise UsageError(f"--data '{folder}' is no folder")
        self.files = sorted(
            path for path in Path(folder).iterdir()
            if path.suffix.lower() in SUFFIXES or path.suffix in ARRAYS
        )
        if not self.files:
            raise UsageError(
                f"--data '{folder}' holds no samples: no .npy or .npz file and no picture "
                f"({', '.join(sorted(SUFFIXES))})"
            )
        many = len(specs) > 1
        single = next((file for file in self.files if many and file.suffix != ".npz"), None)
        if single is not None:
            names = ", ".join(spec.name for spec in specs)
            raise UsageError(
                f"'{single}' is one array; the model has the inputs {names}, so that a sample is "
                "an .npz file with an array for each"
            )

    @property
    def names(self) -> list[str]:
        """What messages call the samples."""
        return [file.name for file in self.files]

    def __len__(self) -> int:
        return len(self.files)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for file in self.files:
            yield self._read(file)

    def _read(self, file: Path) -> dict[str, Any]:
        if file.suffix == ".npz":
            with load_arrays(file) as found:
                return dict(found)
        (spec,) = self.specs
        if file.suffix == ".npy":
            return {spec.name: load_arrays(file)}
        return {spec.name: load_picture(file, spec, self.options)}
