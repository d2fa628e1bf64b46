"""Weights in steps whose products fit 16 bits whatever the data are: what dot2 needs to be exact.

A group is the four input channels that one lane adds together, in two pairs; a panel is the output
channels of a register tile. A step sums the pairs of one group, or of two that fit together, in 16
bits. Bytes are at most 255, so a sum is in range if its positive weights are at most 128 together,
and its negative ones too. A group that is not so by itself becomes two, with half its weights each.
"""

from dataclasses import dataclass

import numpy as np

from sterna.relay.arrays import Array

# The largest sum of weights of one sign that 16 bits hold times 255: 128 * 255 = 32640.
MOST = 128


@dataclass(frozen=True, slots=True)
class Steps:
    """The groups of all panels, in each first those that are summed two by two."""

    weight: Array
    """(group, output channel of the panel, 4), of int8."""
    places: Array
    """Which group of the weights each is, of int32."""
    starts: Array
    """Where each panel's groups begin and where those that stand alone do, of int32. The last row
    has the end twice."""

    @property
    def cost(self) -> int:
        """Instructions for each vector: a product for each group, their sum, and two to add it."""
        begins, alone, ends = self.starts[:-1, 0], self.starts[:-1, 1], self.starts[1:, 0]
        return int(5 * ((alone - begins) // 2).sum() + 3 * (ends - alone).sum())


def fits_pairs(pairs: Array) -> Array:
    """Whether the products of each two weights of the last axis fit, whatever the data are."""
    positive, negative = np.maximum(pairs, 0).sum(-1), -np.minimum(pairs, 0).sum(-1)
    found: Array = np.maximum(positive, negative) <= MOST
    return found


def steps_of(weights: Array, panel: int) -> Steps:
    """Weights (output channel, group, 4) in steps."""
    parts, starts, begin = [], [], 0
    for first in range(0, len(weights), panel):
        values, places = _fitting(weights[first : first + panel].transpose(1, 0, 2))
        pairs, alone = _matched(_loads(values))
        order = np.concatenate([pairs.reshape(-1), alone])
        parts.append((values[order], places[order]))
        starts.append((begin, begin + pairs.size))
        begin += len(order)
    starts.append((begin, begin))
    weight, which = (np.concatenate(each) for each in zip(*parts, strict=True))
    return Steps(weight.astype("int8"), which.astype("int32"), np.array(starts, "int32"))


def _fitting(groups: Array) -> tuple[Array, Array]:
    """Groups (group, channel, 4) that fit by themselves, and which they were."""
    values = groups.astype("int32")
    fits: Array = np.all(fits_pairs(values.reshape(len(values), -1, 2)), axis=1)
    half = values >> 1
    first = np.where(fits[:, None, None], values, half)
    places = np.concatenate([np.arange(len(groups)), np.flatnonzero(~fits)])
    every = np.concatenate([first, (values - half)[~fits]])
    order = np.argsort(places, kind="stable")
    return every[order], places[order]


def _loads(groups: Array) -> Array:
    """Of each pair of each channel what its weights of one sign are together, for both signs."""
    pairs = groups.reshape(len(groups), -1, 2)
    positive, negative = np.maximum(pairs, 0).sum(-1), -np.minimum(pairs, 0).sum(-1)
    return np.concatenate([positive, negative], axis=1)


def _matched(loads: Array) -> tuple[Array, Array]:
    """Groups that fit together, two in a row, and those that do not fit to any other."""
    count = len(loads) // 2 * 2
    fits = (loads[0:count:2] + loads[1:count:2] <= MOST).all(axis=1)
    pairs = [(2 * n, 2 * n + 1) for n in np.flatnonzero(fits)]
    left = np.setdiff1d(np.arange(len(loads)), np.array(pairs, int).reshape(-1))
    # The fullest come first, and each takes the fullest that fits to it.
    left = left[np.argsort(-loads[left].max(axis=1), kind="stable")]
    alone = []
    while len(left):
        group, left = left[0], left[1:]
        fitting = (loads[left] + loads[group] <= MOST).all(axis=1)
        if not fitting.any():
            alone.append(group)
            continue
        place = int(fitting.argmax())
        pairs.append((group, left[place]))
        left = np.delete(left, place)
    return np.array(sorted(pairs), int).reshape(-1, 2), np.array(sorted(alone), int)
