"""Smaller lists of numbers that still show the same.

Numbers stand for choices, of which the first is the plainest: the end is cut off, parts are left
out, numbers become zero or smaller, as long as what is looked for is still there (delta debugging).
"""

from collections.abc import Callable, Iterator


def minimize(
    values: list[int], shows: Callable[[list[int]], bool], has_time: Callable[[], bool]
) -> list[int]:
    """A list from which nothing can be taken any more, or for which the time was too short."""
    best, is_smaller = values, True
    while is_smaller and has_time():
        is_smaller = False
        for candidates in (_shorter, _without_parts, _zeroed):
            best, found = _greedy(best, candidates, shows, has_time)
            is_smaller = is_smaller or found
        lowered = _lower(best, shows, has_time)
        is_smaller, best = is_smaller or lowered != best, lowered
    return best


def _greedy(
    best: list[int],
    candidates: Callable[[list[int]], Iterator[list[int]]],
    shows: Callable[[list[int]], bool],
    has_time: Callable[[], bool],
) -> tuple[list[int], bool]:
    found, again = False, True
    while again:
        again = False
        for candidate in candidates(best):
            if not has_time():
                return best, found
            if candidate != best and shows(candidate):
                best, found, again = candidate, True, True
                break
    return best, found


def _shorter(values: list[int]) -> Iterator[list[int]]:
    kept = 0
    while kept < len(values):
        yield values[:kept]
        kept = max(kept + 1, (kept + len(values)) // 2)


def _without_parts(values: list[int]) -> Iterator[list[int]]:
    size = len(values) // 2
    while size:
        for at in range(len(values) - size, -1, -size):
            yield values[:at] + values[at + size :]
        size //= 2


def _zeroed(values: list[int]) -> Iterator[list[int]]:
    size = len(values)
    while size:
        for at in range(0, len(values), size):
            if any(values[at : at + size]):
                zeros = [0] * len(values[at : at + size])
                yield values[:at] + zeros + values[at + size :]
        size //= 2


def _lower(
    best: list[int], shows: Callable[[list[int]], bool], has_time: Callable[[], bool]
) -> list[int]:
    """Each number with fewer bits, then with less and less."""
    for at in range(len(best)):

        def takes(number: int, at: int = at) -> bool:
            nonlocal best
            changed = [*best[:at], number, *best[at + 1 :]]
            if number < 0 or number == best[at] or not has_time() or not shows(changed):
                return False
            best = changed
            return True

        for bit in reversed(range(best[at].bit_length())):
            takes(best[at] & ~(1 << bit))
        step = 1
        while takes(best[at] - 1):
            while takes(best[at] - 2 * step):
                step *= 2
            step = 1
    return best
