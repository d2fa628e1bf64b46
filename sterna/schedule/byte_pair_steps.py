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
# Groups among which those that fit together are looked for.
HAND = 32


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
    def channels(self) -> int:
        """The output channels of a panel."""
        return int(self.weight.shape[1])

    def cost(self, lanes: int) -> int:
        """Instructions of a pixel: of a step its products, their sum, and two that add it."""
        begins, alone, ends = self.starts[:-1, 0], self.starts[:-1, 1], self.starts[1:, 0]
        steps = 5 * ((alone - begins) // 2).sum() + 3 * (ends - alone).sum()
        return int(steps) * self.channels // lanes


def fits_pairs(pairs: Array) -> Array:
    """Whether the products of each two weights of the last axis fit, whatever the data are."""
    found: Array = np.maximum(*_of_signs(pairs)) <= MOST
    return found


def _of_signs(pairs: Array) -> tuple[Array, Array]:
    """What the positive weights of the last axis are together, and the negative ones."""
    positive, negative = np.maximum(pairs, 0), np.minimum(pairs, 0)
    return positive[..., 0] + positive[..., 1], -(negative[..., 0] + negative[..., 1])


def steps_of(weights: Array, panel: int) -> Steps:
    """Weights (output channel, group, 4) in steps."""
    panels = [_fitting(weights[first : first + panel].transpose(1, 0, 2))
              for first in range(0, len(weights), panel)]
    hands = [_hands(_loads(values)) for values, _ in panels]
    partners = _matched(*(np.concatenate(each) for each in zip(*hands, strict=True)))
    parts, starts, begin, first = [], [], 0, 0
    for (values, places), (dealt, _) in zip(panels, hands, strict=True):
        order, paired = _ordered(dealt, partners[first : first + len(dealt)])
        parts.append((values[order], places[order]))
        starts.append((begin, begin + paired))
        begin, first = begin + len(order), first + len(dealt)
    starts.append((begin, begin))
    weight, which = (np.concatenate(each) for each in zip(*parts, strict=True))
    return Steps(weight.astype("int8"), which.astype("int32"), np.array(starts, "int32"))


def _fitting(groups: Array) -> tuple[Array, Array]:
    """Groups (group, channel, 4) that fit by themselves, and which they were."""
    values = groups.astype("int16")
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
    return np.concatenate(_of_signs(pairs), axis=1)


def _hands(loads: Array) -> tuple[Array, Array]:
    """Groups dealt like cards, the fullest first, or -1; and their loads."""
    count = -(-len(loads) // HAND)
    every = np.full(count * HAND, -1)
    every[: len(loads)] = np.argsort(-loads.max(axis=1), kind="stable")
    dealt = every.reshape(HAND, count).T
    return dealt, loads[dealt].astype("uint8")


def _matched(dealt: Array, loads: Array) -> Array:
    """The place of each group's partner in its hand, the fullest that fits to it; -1 for none."""
    free = dealt >= 0
    partners = np.full(dealt.shape, -1)
    for first in range(HAND - 1):
        hands = np.flatnonzero(free[:, first])
        room = MOST - loads[hands, first, None]
        fitting = np.all(room >= loads[hands, first + 1 :], axis=-1) & free[hands, first + 1 :]
        some = fitting.any(axis=1)
        found, second = hands[some], first + 1 + fitting[some].argmax(axis=1)
        partners[found, first], partners[found, second] = second, first
        free[found, first] = free[found, second] = False
    return partners


def _ordered(dealt: Array, partners: Array) -> tuple[Array, int]:
    """The groups of a panel in the order of its steps, and how many of them come in pairs."""
    hand, place = np.nonzero(partners > np.arange(HAND))
    pairs = np.sort([dealt[hand, place], dealt[hand, partners[hand, place]]], axis=0).T
    pairs = pairs[np.argsort(pairs[:, 0])]
    alone = np.sort(dealt[(partners < 0) & (dealt >= 0)])
    return np.concatenate([pairs.reshape(-1), alone]), pairs.size
