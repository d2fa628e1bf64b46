"""sterna demo: compiles a small classifier that comes with the package, and shows that it works.

The classifier and its pictures lie in the folder digits; examples/train_digits.py made them.
"""

import argparse
import platform
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import onnx
from rich.console import Console
from rich.table import Table

from sterna import runtime
from sterna.cli.commands import COMMANDS
from sterna.cli.output import add_json, progress, short_name, shortened, show
from sterna.cli.pictures import bars, side_by_side
from sterna.model import CompiledModel, compile, load
from sterna.version import __version__

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

Array = npt.NDArray[Any]
Classifier = Callable[[Array], Any]
"""Takes a picture, (1, 1, 28, 28) of float32, and gives the digits' probabilities, (1, 10)."""

FOLDER = Path(__file__).resolve().parent / "digits"
TARGET = "llvm -mcpu=native"
SHOWN = 10
TURNS, TURN_SECONDS = 15, 0.01


@dataclass(slots=True)
class Outcome:
    """What the demo found out."""

    model_bytes: int
    compile_seconds: float
    labels: list[int]
    predictions: list[int]
    probabilities: list[float]
    largest_difference: float
    """From what NumPy computes."""
    microseconds: dict[str, float]
    """Per picture, of each engine."""
    profile: dict[str, float]
    """Microseconds of each kernel, the slowest first."""
    exported_bytes: int | None
    """None where no linker was found."""
    why_not_exported: str | None

    @property
    def right(self) -> int:
        """How many pictures it recognised."""
        return sum(a == b for a, b in zip(self.labels, self.predictions, strict=True))

    def to_dict(self) -> dict[str, Any]:
        """All of it, for programs."""
        head = {"version": __version__, "model": "digits.onnx", "target": TARGET}
        return {**head, **asdict(self), "right": self.right}


def add_to(commands: "Subparsers") -> None:
    """Add this command to the command line."""
    parser = commands.add_parser(
        "demo", help=COMMANDS["demo"],
        description="Compile a small classifier of digits, show what it reads in some pictures, "
        "time it beside other ways to run it, and export it.",
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Compile the classifier, check it, time it and show it."""
    data = np.load(FOLDER / "digits.npz", allow_pickle=False)
    with progress(options):
        outcome = try_out(FOLDER / "digits.onnx", data["pictures"], data["labels"])
    show(options, outcome.to_dict(), lambda: text(outcome, data["pictures"]))
    return 0


def try_out(path: Path, pictures: Array, labels: Array) -> Outcome:
    """Compile a classifier, hold it against NumPy, time it and export it."""
    start = time.perf_counter()
    model = compile(path, TARGET, shapes={"picture": (1, 1, *pictures.shape[1:])})
    seconds = time.perf_counter() - start

    inputs = [picture[None, None].astype("float32") / 255 for picture in pictures]
    engines: dict[str, Classifier] = {"Sterna": model, **peers(path)}
    found = {name: np.concatenate([f(x) for x in inputs]) for name, f in engines.items()}
    check_agreement(found, "Sterna", "NumPy")
    size, reason = export(model, inputs, found["Sterna"])
    return Outcome(
        model_bytes=path.stat().st_size,
        compile_seconds=round(seconds, 3),
        labels=labels.tolist(),
        predictions=found["Sterna"].argmax(1).tolist(),
        probabilities=[round(float(p), 4) for p in found["Sterna"].max(1)],
        largest_difference=float(np.abs(found["Sterna"] - found["NumPy"]).max()),
        microseconds=best_times(engines, inputs[0]),
        profile=kernel_times(model, inputs[0]),
        exported_bytes=size,
        why_not_exported=reason,
    )


def check_agreement(found: Mapping[str, Array], ours: str, reference: str) -> None:
    """Two engines' probabilities must be the same up to rounding."""
    difference = float(np.abs(found[ours] - found[reference]).max())
    if not difference <= 1e-5:
        raise ArithmeticError(
            f"{ours}'s probabilities differ from {reference}'s by {difference:.3g}; "
            "this is a bug, please report it"
        )


def peers(path: Path) -> dict[str, Classifier]:
    """The same classifier by other means: NumPy, and ONNX Runtime where it is installed."""
    found: dict[str, Classifier] = {"NumPy": with_numpy(path)}
    try:
        import onnxruntime
    except ModuleNotFoundError:
        return found
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    found["ONNX Runtime"] = lambda picture: session.run(None, {"picture": picture})[0]
    return found


def with_numpy(path: Path) -> Classifier:
    """The classifier in NumPy: convolutions as products of matrices, channels last."""
    graph = onnx.load(path).graph
    weights = {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer}
    layers = [
        (weights[f"{node.output[0]}.weight"], weights[f"{node.output[0]}.bias"])
        for node in graph.node if node.op_type == "Conv"
    ]

    def classify(picture: Array) -> Array:
        x = picture.transpose(0, 2, 3, 1)
        for weight, bias in layers:
            padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
            windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
            x = np.tensordot(windows, weight, ((3, 4, 5), (1, 2, 3))) + bias
            n, height, width, channels = x.shape
            even = x[:, : height // 2 * 2, : width // 2 * 2]
            blocks = even.reshape(n, height // 2, 2, width // 2, 2, channels)
            x = np.maximum(blocks.max((2, 4)), 0)
        flat = x.transpose(0, 3, 1, 2).reshape(len(x), -1)
        scores = flat @ weights["dense.weight"].T + weights["dense.bias"]
        powers = np.exp(scores - scores.max(1, keepdims=True))
        return np.asarray(powers / powers.sum(1, keepdims=True))

    return classify


def best_times(engines: Mapping[str, Classifier], picture: Array) -> dict[str, float]:
    """Microseconds of each engine's fastest turn; they take turns, so that all meet the same."""
    best = dict.fromkeys(engines, float("inf"))
    for _ in range(TURNS):
        for name, classify in engines.items():
            calls, start = 0, time.perf_counter()
            while (spent := time.perf_counter() - start) < TURN_SECONDS:
                classify(picture)
                calls += 1
            best[name] = min(best[name], spent / calls * 1e6)
    return {name: round(value, 1) for name, value in best.items()}


def kernel_times(model: CompiledModel, picture: Array) -> dict[str, float]:
    """Microseconds of each kernel, the slowest first."""
    times = model.profile(repeat=TURNS, bounds=False, inputs={"picture": picture})
    slowest = sorted(times.nodes, key=lambda node: -node.seconds)
    return {short_name(node.name): round(node.seconds * 1e6, 2) for node in slowest}


def export(
    model: CompiledModel, inputs: list[Array], expected: Array
) -> tuple[int | None, str | None]:
    """The size of the classifier in a file that gives the same numbers, or why there is none."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "digits.so"
        try:
            model.export(path)
        except RuntimeError as error:
            return None, str(error)
        again = load(path)
        if not np.array_equal(np.concatenate([again(x) for x in inputs]), expected):
            raise ArithmeticError("digits.so gives other numbers than it was exported from")
        return path.stat().st_size, None


def text(outcome: Outcome, pictures: Array) -> str:
    """What came out, for people, in the colours that the terminal has."""
    console = Console()
    with console.capture() as captured:
        draw(console, outcome, pictures)
    return captured.get().rstrip("\n")


def draw(console: Console, outcome: Outcome, pictures: Array) -> None:
    """The same, on a console."""
    console.print(
        f"[bold]Sterna {__version__}[/bold] on {platform.machine()}, "
        f"{runtime.num_threads()} threads\n"
    )
    console.print(
        f"digits.onnx, {outcome.model_bytes / 1024:.0f} KB: "
        f"compiled in {outcome.compile_seconds:.2f} s for {TARGET}\n"
    )
    captions = [
        f"{digit} ({probability:.0%})"
        for digit, probability in zip(outcome.predictions, outcome.probabilities, strict=True)
    ]
    console.print(side_by_side(console, list(pictures[:SHOWN]), captions[:SHOWN]))
    console.print(
        f"It read {outcome.right} of {len(outcome.labels)} pictures correctly, and differs from "
        f"NumPy by {outcome.largest_difference:.0e} at most.\n"
    )
    table = Table("one picture", "time", "")
    fastest = outcome.microseconds["Sterna"]
    for name, value in sorted(outcome.microseconds.items(), key=lambda item: item[1]):
        table.add_row(name, f"{value:.1f} us", f"{value / fastest:.1f} x")
    console.print(table)
    profile = Table("kernel", "time", "")
    drawn = bars(list(outcome.profile.values()), width=24)
    for (name, value), bar in zip(outcome.profile.items(), drawn, strict=True):
        profile.add_row(shortened(name), f"{value:.1f} us", bar)
    console.print(profile)
    if outcome.exported_bytes is not None:
        console.print(
            f"Exported to digits.so, {outcome.exported_bytes / 1024:.0f} KB with code, weights "
            "and graph; loaded again it gives the same numbers."
        )
    else:
        console.print(f"Not exported: {outcome.why_not_exported}", markup=False)
