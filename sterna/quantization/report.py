"""What quantising a model has cost: the error of each layer, and the agreement of the outputs."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import numpy as np

from sterna.relay.arrays import Array
from sterna.support.table import lay_out


@dataclass(frozen=True, slots=True)
class LayerReport:
    """What quantising a layer's input and weights does to its outputs."""

    name: str
    kind: str
    weights: int
    error: float
    """The mean square of the error as a share of that of the outputs."""
    seen: tuple[float, float]
    """The range of the input on the samples."""
    kept: tuple[float, float]
    """The range that the input's integers stand for."""
    in_integers: bool = True

    @staticmethod
    def of_float(name: str, kind: str, weights: int) -> "LayerReport":
        """A layer that was never to be quantised."""
        return LayerReport(name, kind, weights, 0.0, (0.0, 0.0), (0.0, 0.0), False)

    @property
    def sqnr(self) -> float:
        """The signal-to-quantisation-noise ratio in decibels."""
        return decibels(self.error)

    def left_in_float(self) -> "LayerReport":
        """The same of a layer that was left as it was."""
        return replace(self, in_integers=False)


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far outputs are from those of the float model."""

    top_class: float | None
    """The share of samples whose top class is the same; None: outputs are no scores of classes."""
    error: float
    """The mean square of the difference as a share of that of the outputs."""

    @property
    def loss(self) -> float:
        """The share of results that changed, or where there are no classes the relative error."""
        return math.sqrt(self.error) if self.top_class is None else 1 - self.top_class

    @staticmethod
    def of(
        reference: Iterable[Mapping[str, Array]], found: Iterable[Mapping[str, Array]]
    ) -> "Agreement":
        """Compare outputs, sample by sample."""
        same = total = 0
        noise = power = 0.0
        for expected, got in zip(reference, found, strict=True):
            first = next(iter(expected))
            classes = class_scores(expected[first])
            if classes is not None:
                other = class_scores(got[first])
                assert other is not None
                same += int((classes.argmax(-1) == other.argmax(-1)).sum())
                total += len(classes)
            for name, value in expected.items():
                if value.dtype.kind == "f":
                    wide = value.astype(np.float64)
                    noise += float(((got[name] - wide) ** 2).sum())
                    power += float((wide**2).sum())
        return Agreement(same / total if total else None, noise / power if power else 0.0)


def class_scores(value: Array) -> Array | None:
    """An output as (samples, classes), if it has that shape."""
    if value.ndim < 2 or value.shape[1] < 2 or value.size != value.shape[0] * value.shape[1]:
        return None
    return value.reshape(value.shape[:2])


@dataclass(frozen=True, slots=True)
class QuantizationReport:
    """All of it, as a table, a picture or a dictionary."""

    layers: Sequence[LayerReport]
    agreement: Agreement
    samples: int
    far_out: Sequence[str] = ()
    """What is told of samples that were left out."""

    def table(self) -> str:
        """A row for each layer, in the order of the network."""
        rows = list(self.layers)
        return lay_out([
            ("Layer", [row.name for row in rows]),
            ("Operator", [row.kind for row in rows]),
            ("Weights", [str(row.weights) for row in rows]),
            ("Input seen", [_range(row.seen) if any(row.seen) else "" for row in rows]),
            ("Input kept", [_range(row.kept) if row.in_integers else "float" for row in rows]),
            ("SQNR (dB)", [f"{row.sqnr:.1f}" if row.in_integers else "float" for row in rows]),
        ])

    def summary(self) -> str:
        """What the outputs say, in a sentence, and which samples were left out."""
        whole = sum(row.in_integers for row in self.layers)
        parts = [f"{whole} of {len(self.layers)} layers in integers",
                 f"outputs at {decibels(self.agreement.error):.1f} dB"]
        if self.agreement.top_class is not None:
            parts.append(f"the top class agrees on {self.agreement.top_class:.2%}")
        said = [f"{', '.join(parts)} of {self.samples} samples"]
        return "\n".join([*said, *(f"left out as far from the others: {text}"
                                   for text in self.far_out)])

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "samples": self.samples,
            "left_out": list(self.far_out),
            "top_class_agreement": self.agreement.top_class,
            "output_sqnr_db": decibels(self.agreement.error),
            "layers": [
                {"name": row.name, "operator": row.kind, "weights": row.weights,
                 "sqnr_db": row.sqnr, "seen": list(row.seen), "kept": list(row.kept),
                 "in_integers": row.in_integers}
                for row in self.layers
            ],
        }

    def draw(self) -> str:
        """An SVG: a bar for each layer, as long as its ratio of signal to noise in decibels."""
        width, bar, left = 720, 16, 260
        height = 56 + bar * len(self.layers)
        longest = max((min(row.sqnr, 100.0) for row in self.layers), default=1.0) or 1.0
        text = "font-family='sans-serif' font-size='11' fill='#333'"
        lines = [
            f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}'>",
            f"<rect width='{width}' height='{height}' fill='white'/>",
            f"<text x='8' y='20' {text}>{escape(self.summary())}</text>",
            f"<text x='8' y='36' {text}>signal to quantisation noise of each layer (dB)</text>",
        ]
        for place, row in enumerate(self.layers):
            down = 48 + bar * place
            name = row.name if len(row.name) <= 40 else f"…{row.name[-39:]}"
            length = max(1.0, min(max(row.sqnr, 0.0), 100.0) / longest * (width - left - 60))
            colour = "#1f6feb" if row.in_integers else "#bbb"
            lines += [
                f"<text x='8' y='{down + 11}' {text}>{escape(name)}</text>",
                f"<rect x='{left}' y='{down + 2}' width='{length:.1f}' height='{bar - 4}' "
                f"fill='{colour}'/>",
                f"<text x='{left + length + 4:.1f}' y='{down + 11}' {text}>"
                f"{f'{row.sqnr:.1f}' if row.in_integers else 'float'}</text>",
            ]
        return "\n".join([*lines, "</svg>"]) + "\n"


def decibels(error: float) -> float:
    """A share of noise as a ratio of signal to noise in decibels."""
    return -10 * math.log10(max(error, 1e-30))


def _range(ends: tuple[float, float]) -> str:
    return f"{ends[0]:.4g} … {ends[1]:.4g}"
