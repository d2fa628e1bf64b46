"""A product of a constant matrix and a vector in few steps, which rows share.

    a + b + 2c, a - b + 2c  ->  t = a + 2c, t + b, t - b
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

Matrix = tuple[tuple[Fraction, ...], ...]
# Of a row, what each value is multiplied with.
Terms = dict[int, Fraction]


@dataclass(frozen=True, slots=True)
class Step:
    """left + factor * right, of values by their numbers: one instruction."""

    left: int
    right: int
    factor: Fraction


@dataclass(frozen=True, slots=True)
class LinearSteps:
    """Values are numbered: first those of the vector, then one for every step."""

    steps: tuple[Step, ...]
    results: tuple[tuple[int, Fraction], ...]
    """For each row the value that it is a multiple of, and the factor."""

    @property
    def cost(self) -> int:
        """Instructions for one product."""
        return len(self.steps) + sum(factor != 1 for _, factor in self.results)


@cache
def linear_steps(matrix: Matrix) -> LinearSteps:
    """Two terms that rows have in one ratio become a value, the most frequent first."""
    rows = [{i: factor for i, factor in enumerate(row) if factor} for row in matrix]
    first_new = len(matrix[0])
    steps: list[Step] = []
    while found := _shared_pair(rows):
        left, right, ratio = found
        for row in rows:
            if _ratio(row, left, right) == ratio:
                row[first_new + len(steps)] = row.pop(left)
                del row[right]
        steps.append(Step(left, right, ratio))
    results = []
    for row in rows:
        (value, factor), *others = sorted(row.items(), key=lambda term: (term[1] != 1, term[0]))
        for other, other_factor in others:
            steps.append(Step(value, other, other_factor / factor))
            value = first_new + len(steps) - 1
        results.append((value, factor))
    return LinearSteps(tuple(steps), tuple(results))


def _ratio(row: Terms, left: int, right: int) -> Fraction | None:
    return row[right] / row[left] if left in row and right in row else None


def _shared_pair(rows: Sequence[Terms]) -> tuple[int, int, Fraction] | None:
    """Two terms and their ratio: what most rows have; None if no two have the same.

    Of several such, one that leaves most rows a term without a factor, and then a plain sum.
    """
    counts: Counter[tuple[int, int, Fraction]] = Counter()
    ones: Counter[tuple[int, int, Fraction]] = Counter()
    for row in rows:
        for left, first in row.items():
            for right, second in row.items():
                if left != right:
                    counts[left, right, second / first] += 1
                    ones[left, right, second / first] += first == 1
    most = max(counts.values(), default=0)
    if most < 2:
        return None
    pairs = (pair for pair, count in counts.items() if count == most)
    return min(pairs, key=lambda pair: (-ones[pair], abs(pair[2]) != 1, pair))
