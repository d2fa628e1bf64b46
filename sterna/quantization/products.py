"""Layers as matrix products over sampled patches: what quantising costs their outputs.

A patch is what one output of a layer is computed from: a window of an image, or a row. A few of
them, drawn evenly from the samples, say what error an input's scheme or weights of 8 bits make in
the layer's output, without running the network.
"""

from dataclasses import dataclass, field

import numpy as np

from sterna.quantization.affine import SMALLEST_SCALE, Affine
from sterna.quantization.rounding import LARGEST_DEPTH, REACH, Rounding, rounded
from sterna.relay.arrays import Array

# Patches that a layer keeps at most, and the products that may be spent on one try.
MOST_PATCHES, MOST_PRODUCTS = 1024, 1 << 26
FEWEST_PATCHES = 64
# Parts of the largest weight of a channel that are tried as what 127 stands for.
WEIGHT_SHARES = (1.0, 0.97, 0.94, 0.9, 0.85, 0.8)


@dataclass(slots=True)
class Products:
    """A layer's weights as (groups, outputs, depth), and patches as (patches, groups, depth)."""

    weights: Array
    takes_means: bool = False
    """Whether the layer's bias takes up the mean of an error."""
    kept: list[Array] = field(default_factory=list)
    every: int = 1
    """One patch of so many that are offered is kept."""
    _offered: int = 0
    _patches: Array | None = None
    _power: Array | None = None
    _quantized: tuple[Array, Array] | None = None

    @property
    def most(self) -> int:
        """How many patches are kept at most."""
        return int(min(max(MOST_PRODUCTS // max(self.weights.size, 1), FEWEST_PATCHES),
                       MOST_PATCHES))

    def offer(self, patches: Array) -> None:
        """Keep patches of one sample, fewer the more there have been."""
        for patch in patches:
            if self._offered % self.every == 0:
                self.kept.append(patch)
            self._offered += 1
            if len(self.kept) > self.most:
                self.kept = self.kept[::2]
                self.every *= 2
        self._patches = self._power = self._quantized = None

    @property
    def patches(self) -> Array:
        """All that were kept."""
        if self._patches is None:
            groups, _, depth = self.weights.shape
            shape = (len(self.kept), groups, depth)
            self._patches = np.asarray(self.kept, np.float32).reshape(shape)
        return self._patches

    def power(self) -> Array:
        """The mean square of each output, of all of a layer's at the least a little."""
        if self._power is None:
            squares = mean_squares(outputs(self.patches, self.weights))
            self._power = np.maximum(squares, squares.mean() * 1e-3 + 1e-30)
        return self._power

    def input_error(self, scheme: Affine) -> float:
        """The error of the outputs by quantising the input, as a share of their power."""
        if not self.kept:
            return 0.0
        error = outputs(scheme.nearest(self.patches) - self.patches, self.weights)
        return float(self._mean_squares(error).mean() / self.power().mean())

    def quantized_weights(self) -> tuple[Array, Array]:
        """Symmetric weights of 8 bits and a scale for each output, by the outputs' error."""
        if self._quantized is None:
            self._quantized = self._search_scales()
        return self._quantized

    def _search_scales(self) -> tuple[Array, Array]:
        reach = np.abs(self.weights).max(2)
        scales = np.maximum(reach / REACH, SMALLEST_SCALE).astype(np.float32)
        if not self.kept or self.weights.shape[2] > LARGEST_DEPTH:
            return rounded(self.weights, scales).astype(np.int8), scales
        rounding = Rounding(self._unit_patches(), self.takes_means)
        best, whole = np.full(reach.shape, np.inf), np.zeros(self.weights.shape, np.int8)
        for share in WEIGHT_SHARES:
            tried = np.maximum(reach * share / REACH, SMALLEST_SCALE).astype(np.float32)
            made = rounding.whole(self.weights, tried)
            error = rounding.error(made * tried[..., None] - self.weights)
            better = error < best * (1 - 1e-6)
            scales, best = np.where(better, tried, scales), np.where(better, error, best)
            whole = np.where(better[..., None], made, whole)
        return whole.astype(np.int8), scales.astype(np.float32)

    def _unit_patches(self) -> Array:
        """Patches of about 1, whose squares float64 holds."""
        size = float(np.abs(self.patches).max(initial=0.0))
        made: Array = self.patches / np.float32(size) if size > 0 else self.patches
        return made

    def total_error(self, scheme: Affine, weights: Array) -> tuple[float, Array]:
        """The share of the outputs' power that quantising adds as error, and its mean by output."""
        groups, units, _ = self.weights.shape
        if not self.kept:
            return 0.0, np.zeros((groups, units), np.float32)
        exact = outputs(self.patches, self.weights)
        error = outputs(scheme.nearest(self.patches), weights) - exact
        power = float(mean_squares(exact).mean())
        share = float(self._mean_squares(error).mean()) / max(power, 1e-30)
        return share, error.mean(0)

    def _mean_squares(self, error: Array) -> Array:
        """The mean square of an error, less what a bias takes up."""
        return mean_squares(error - error.mean(0) if self.takes_means else error)


def mean_squares(numbers: Array) -> Array:
    """The mean square over patches, whose squares float32 need not hold."""
    made: Array = np.square(numbers, dtype=np.float64).mean(0)
    return made


def outputs(patches: Array, weights: Array) -> Array:
    """What a layer makes of patches: (patches, groups, outputs)."""
    made = np.matmul(patches.transpose(1, 0, 2), weights.transpose(0, 2, 1))
    return np.ascontiguousarray(made.transpose(1, 0, 2))
