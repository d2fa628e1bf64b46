"""sterna run: a model on arrays, pictures or random numbers."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sterna.cli.commands import COMMANDS
from sterna.cli.failures import UsageError
from sterna.cli.inputs import add_inputs, expect_inputs, read_inputs
from sterna.cli.models import add_model, add_threads, expect_file, open_model, parse_count
from sterna.cli.output import show
from sterna.support.table import lay_out
from sterna.support.write_aside import write_aside

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

Array = npt.NDArray[Any]

SHOWN = 4
BACKGROUND = "background"


def add_to(commands: "Subparsers") -> None:
    """Add this command to the command line."""
    parser = commands.add_parser(
        "run", help=COMMANDS["run"],
        description="Run a model once and show or save what it gives.",
    )
    add_model(parser)
    add_threads(parser)
    add_inputs(parser)
    parser.add_argument(
        "--random", action="store_true", help="random numbers for inputs that no file gives"
    )
    group = parser.add_argument_group("outputs")
    group.add_argument("-o", "--output", metavar="FILE.npz", help="save the outputs by name")
    group.add_argument("--top", type=parse_count, help="show this many of the largest scores")
    group.add_argument("--labels", metavar="FILE", help="names of the classes, one per line")
    group.add_argument("--softmax", action="store_true", help="make the scores probabilities")
    group.add_argument("--scores", metavar="NAME", help="the output for --top; else the first")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the model and show its outputs or the largest scores."""
    if options.output and Path(options.output).suffix != ".npz":
        raise UsageError(f"-o '{options.output}': the name must end in .npz")
    if (options.labels or options.softmax or options.scores) and not options.top:
        raise UsageError("--labels, --softmax and --scores go with --top")
    expect_file("-o", options.output)
    expect_inputs(options)
    labels = _labels(options.labels)
    model = open_model(options)
    outputs = model.run(read_inputs(options, model.inputs, options.random))
    if options.output:
        write_aside(Path(options.output), lambda aside: _save(aside, outputs))
    data: dict[str, Any] = {"outputs": {name: summary(array) for name, array in outputs.items()}}
    if options.top:
        scores = _scores(options, outputs)
        data["top"] = _top(scores, options.top, labels)
    show(options, data, lambda: _text(data))
    return 0


def _labels(path: str | None) -> list[str]:
    return [] if path is None else Path(path).read_text("utf-8").splitlines()


def _save(path: Path, outputs: dict[str, Array]) -> None:
    """Floats that NumPy itself lacks, and so its files too, are saved as float32."""
    known = {n: a.astype("float32") if a.dtype.kind == "V" else a for n, a in outputs.items()}
    with open(path, "wb") as file:
        np.savez(file, **known)  # type: ignore[arg-type]


def summary(array: Array) -> dict[str, Any]:
    """An output in short."""
    numbers = array.astype("float64").reshape(-1)
    return {
        "type": f"{array.dtype}{list(array.shape)}",
        "min": float(numbers.min()) if numbers.size else None,
        "mean": float(numbers.mean()) if numbers.size else None,
        "max": float(numbers.max()) if numbers.size else None,
        "first": numbers[:SHOWN].tolist(),
    }


def _scores(options: argparse.Namespace, outputs: dict[str, Array]) -> Array:
    name = options.scores or next(iter(outputs))
    if name not in outputs:
        raise UsageError(f"--scores {name}: the model's outputs are {', '.join(outputs)}")
    found = np.atleast_1d(outputs[name].astype("float64"))
    if not found.size:
        raise ValueError(f"--top: the output '{name}' is empty")
    classes = _classes(found.shape)
    scores: Array = np.moveaxis(found, classes, -1).reshape(-1, found.shape[classes])
    if options.softmax:
        powers = np.exp(scores - scores.max(1, keepdims=True))
        scores = powers / powers.sum(1, keepdims=True)
    return scores


def _classes(shape: tuple[int, ...]) -> int:
    """The axis of the classes: the last, but for pictures of one pixel, (1, 1000, 1, 1)."""
    wide = [axis for axis, extent in enumerate(shape) if axis and extent > 1]
    return wide[-1] if wide else len(shape) - 1


def _top(scores: Array, most: int, labels: list[str]) -> list[dict[str, Any]]:
    """The largest scores of each row."""
    labels = _labels_of(labels, scores.shape[1])
    order = np.argsort(-scores, axis=1, kind="stable")[:, :most]
    return [
        {"row": row, "class": int(place), "label": labels[place] if labels else None,
         "score": float(scores[row, place])}
        for row in range(len(scores))
        for place in order[row]
    ]


def _labels_of(labels: list[str], classes: int) -> list[str]:
    """A label for each class: lists and models differ in whether the first is the background."""
    if not labels or len(labels) == classes:
        return labels
    if len(labels) == classes + 1:
        return labels[1:]
    if len(labels) == classes - 1:
        return [BACKGROUND, *labels]
    raise ValueError(f"there are {len(labels)} labels for {classes} scores")


def _text(data: dict[str, Any]) -> str:
    if "top" in data:
        top = data["top"]
        columns = [("Row", [str(row["row"]) for row in top])] if top[-1]["row"] else []
        columns += [("Class", [str(row["class"]) for row in top]),
                    ("Score", [f"{row['score']:.6g}" for row in top])]
        if top[0]["label"] is not None:
            columns.append(("Label", [row["label"] for row in top]))
        return lay_out(columns)
    return outputs_table(data["outputs"])


def outputs_table(rows: dict[str, Any]) -> str:
    """A row per output, of what summary gives."""
    return lay_out([
        ("Output", list(rows)),
        ("Type", [row["type"] for row in rows.values()]),
        *((title, [_number(row[title.lower()]) for row in rows.values()])
          for title in ("Min", "Mean", "Max")),
        ("First", [" ".join(map(_number, row["first"])) for row in rows.values()]),
    ])


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.5g}"
