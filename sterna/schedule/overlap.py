"""Results that overlap the data they are made from: where they may lie in its memory.

Kernels go over pixels in the order of memory. Where a result begins early enough before the data,
what is written never reaches what is still to be read: a pointwise layer of more channels than it
reads ends where its data ends, one of fewer begins where that begins, and a window stays its rows
behind.
"""

import numpy as np

from sterna.schedule.contraction import Contraction


def lead_of_pixels(made: Contraction, together: int) -> int:
    """By how many numbers the result must begin before the data of a contraction of images.

    together: pixels that are read before the first result of them is written; with 0 the results
    of a pixel are written while it is read.
    """
    pixel = np.arange(made.pixels)
    if made.is_pointwise:
        first = pixel * made.inputs
    else:
        image, down, across = np.unravel_index(pixel, (made.batch, *made.result))
        top = np.maximum(down * made.strides[0] - made.before[0], 0)
        left = np.maximum(across * made.strides[1] - made.before[1], 0)
        first = ((image * made.image[0] + top) * made.image[1] + left) * made.inputs
    unread = np.minimum.accumulate(first[::-1])[::-1]
    step = max(1, together)
    written = (pixel[::step] + (together == 0)) * made.outputs
    return max(0, int((written - unread[::step]).max()))


def bands_take_place(made: Contraction, band: int) -> bool:
    """Whether results of a depthwise contraction may begin where its data begins.

    Planes of channels are read band by band, so many rows of results each; what is written of a
    channel lies where that channel was, and must stay before the rows of the next band.
    """
    row = np.arange(band, made.result[0], band)
    unread = np.maximum(row * made.strides[0] - made.before[0], 0) * made.image[1]
    extents = zip((*made.result, made.outputs), (*made.image, made.inputs), strict=True)
    shrinks = all(have <= had for have, had in extents)
    return shrinks and bool(np.all(row * made.result[1] <= unread))
