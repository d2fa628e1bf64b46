"""Weights of 8 bits that keep a layer's outputs: GPTQ, or optimal brain quantisation.

The columns of a matrix of weights are rounded one after the other, and those still to come are
moved so that they make good what rounding did to the outputs, as far as inputs go together.
"""

import numpy as np

from sterna.relay.arrays import Array

REACH = 127
# What is added to the second moments, as a share of their mean: so many inputs of a few samples
# never go together quite as they seem to.
DAMPING = 0.05
# Larger matrices of second moments take too long; such weights go to the nearest integers.
LARGEST_DEPTH = 4096
COLUMNS = 64


def rounded(weights: Array, scales: Array) -> Array:
    """Weights as the nearest integers from -127 to 127, by a scale for each output."""
    made: Array = np.clip(np.rint(weights / scales[..., None]), -REACH, REACH)
    return made


class Rounding:
    """How inputs of a layer go together: second moments of (groups, depth, depth)."""

    def __init__(self, patches: Array, is_centred: bool) -> None:
        rows = patches.astype(np.float64).transpose(1, 0, 2)
        rows = rows - rows.mean(1, keepdims=True) if is_centred else rows
        self.moments: Array = rows.transpose(0, 2, 1) @ rows / max(len(patches), 1)
        power = np.diagonal(self.moments, axis1=1, axis2=2)
        self.order = np.argsort(-power, axis=1, kind="stable")
        least = power.mean(1)[:, None, None] * DAMPING
        damped = self.moments + np.where(least > 0, least, 1.0) * np.eye(rows.shape[2])
        damped = np.take_along_axis(damped, self.order[:, :, None], 1)
        damped = np.take_along_axis(damped, self.order[:, None, :], 2)
        self.factor = np.linalg.cholesky(np.linalg.inv(damped)).transpose(0, 2, 1)

    def error(self, change: Array) -> Array:
        """The mean square of what a change of (groups, outputs, depth) does to each output."""
        made: Array = ((change @ self.moments) * change).sum(2)
        return made

    def whole(self, weights: Array, scales: Array) -> Array:
        """Integers from -127 to 127 for weights of (groups, outputs, depth)."""
        left = np.take_along_axis(weights.astype(np.float64), self.order[:, None, :], 2)
        steps = scales.astype(np.float64)
        made = np.empty(left.shape)
        depth = left.shape[2]
        for start in range(0, depth, COLUMNS):
            end = min(start + COLUMNS, depth)
            shares = np.empty((*left.shape[:2], end - start))
            for column in range(start, end):
                row = self.factor[:, None, column, column:end]
                exact = left[..., column]
                made[..., column] = np.clip(np.rint(exact / steps), -REACH, REACH)
                share = (exact - made[..., column] * steps) / row[..., 0]
                left[..., column + 1 : end] -= share[..., None] * row[..., 1:]
                shares[..., column - start] = share
            left[..., end:] -= shares @ self.factor[:, start:end, end:]
        back = np.argsort(self.order, axis=1)
        return np.take_along_axis(made, back[:, None, :], 2)
