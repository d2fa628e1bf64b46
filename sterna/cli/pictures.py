"""Pictures in a terminal: two pixels in each character, the upper and the lower half."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.columns import Columns
from rich.console import Console
from rich.text import Text

Array = npt.NDArray[Any]

# By whether the upper and the lower pixel are ink; what a terminal without colours shows.
HALVES = {(False, False): " ", (True, False): "▀", (False, True): "▄", (True, True): "█"}

EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")


def side_by_side(
    console: Console, pictures: Sequence[Array], captions: Sequence[str]
) -> Columns:
    """Pictures of grey levels in uint8, at half their size, as many in a row as there is room."""
    coloured = console.color_system is not None and not console.no_color
    drawn = [
        Text("\n").join([*rows(halve(picture), coloured), Text(caption, "bold"), Text()])
        for picture, caption in zip(pictures, captions, strict=True)
    ]
    return Columns(drawn, padding=(0, 2))


def bars(values: Sequence[float], width: int = 40) -> list[str]:
    """Bars in proportion to numbers, the longest of which is so many characters wide."""
    longest = max(values, default=0.0) or 1.0
    eighths = [max(1, round(8 * width * value / longest)) for value in values]
    return ["█" * (count // 8) + EIGHTHS[count % 8] for count in eighths]


def halve(picture: Array) -> Array:
    """The means of squares of four pixels."""
    height, width = (size // 2 * 2 for size in picture.shape)
    squares = picture[:height, :width].reshape(height // 2, 2, width // 2, 2)
    return np.asarray(squares.mean((1, 3)).round().astype("uint8"))


def rows(picture: Array, coloured: bool) -> list[Text]:
    """The lines of characters that show a picture; an odd last row stands over paper."""
    even = np.pad(picture, ((0, picture.shape[0] % 2), (0, 0)))
    threshold = ink_threshold(picture)
    lines = []
    for upper, lower in zip(even[::2].tolist(), even[1::2].tolist(), strict=True):
        line = Text()
        for top, bottom in zip(upper, lower, strict=True):
            if coloured:
                line.append("▀", f"rgb({top},{top},{top}) on rgb({bottom},{bottom},{bottom})")
            else:
                line.append(HALVES[top > threshold, bottom > threshold])
        lines.append(line)
    return lines


def ink_threshold(picture: Array) -> float:
    """The level between paper and ink: the middle between the mean and the darkest ink."""
    return (float(picture.mean()) + float(picture.max())) / 2.2
