"""Operators of detectors and recommenders: boxes, sorting, gathering, scattering, counting."""

from collections.abc import Sequence

import numpy as np
from layer_list.elements import shape_name
from layer_list.layer import Graph, Layer, Make, layers_of

from sterna.relay.arrays import Array

LAYERS: list[Layer] = []


def _add(kind: str, name: str, make: Make) -> None:
    LAYERS.extend(layers_of(kind, name, make))


# ---- sorting ----


def distinct(graph: Graph, shape: Sequence[int]) -> str:
    """Numbers of which no two are equal, so that every engine puts them into one order."""
    order = graph.rng.permutation(int(np.prod(shape)))
    return graph.feed((order / order.size).astype("float32").reshape(shape))


def top(shape: Sequence[int], count: int, largest: int = 1, axis: int = -1) -> Make:
    """The largest numbers along an axis, in order, and where they are."""
    return lambda graph: graph.nodes_with(
        2, "TopK", distinct(graph, shape), graph.constant([count], "int64"), largest=largest,
        axis=axis
    )


for _name, _shape, _count in (
    ("classes", (1, 1000), 5), ("classes", (8, 1000), 5), ("vocabulary", (1, 50257), 50),
    ("vocabulary", (5, 32128), 10),
    ("rpn", (1, 19200), 1000), ("rpn", (1, 159882), 2000), ("anchors", (1, 100000), 100),
    ("detr", (1, 27300), 300),
    ("centernet", (80, 16384), 100), ("experts", (128, 8), 2), ("neighbours", (1024, 1024), 20),
    ("candidates", (1, 1000000), 100),
    ("argsort", (1, 1000), 1000), ("argsort", (1, 100000), 100000), ("argsort", (1000, 100), 100),
    ("argsort", (64, 4096), 4096),
):
    _add("sort", f"TopK_{_name}_{_count}of{shape_name(_shape)}", top(_shape, _count))
_add("sort", "TopK_smallest_16of512x512", top((512, 512), 16, 0))
_add("sort", "TopK_middle_axis_10of1x1000x64", top((1, 1000, 64), 10, 1, 1))


def unique(size: int, high: int, rising: int) -> Make:
    """The different numbers among many."""
    return lambda graph: graph.nodes_with(4, "Unique", graph.indices(high, size), sorted=rising)


_add("sort", "Unique_10000of1000", unique(10_000, 1000, 1))
_add("sort", "Unique_100000of50000", unique(100_000, 50_000, 1))

# ---- boxes ----


def boxes(graph: Graph, batch: int, count: int, size: float = 640.0) -> Array:
    """Corners of boxes that overlap here and there."""
    low = graph.rng.random((batch, count, 2)) * size
    return np.concatenate([low, low + graph.rng.random((batch, count, 2)) * size / 8],
                          -1).astype("float32")


def suppressed(count: int, classes: int, keep: int, threshold: float) -> Make:
    """Non-maximum suppression."""
    def make(graph: Graph) -> str:
        return graph.node(
            "NonMaxSuppression", graph.feed(boxes(graph, 1, count)),
            distinct(graph, (1, classes, count)),
            graph.constant([keep], "int64"), graph.constant([0.5]), graph.constant([threshold]),
        )

    return make


for _count, _classes, _keep, _threshold in (
    (100, 1, 100, 0.05), (1000, 1, 100, 0.05), (2000, 1, 1000, 0.0), (8400, 1, 300, 0.25),
    (8732, 20, 200, 0.9),
    (1000, 80, 100, 0.5), (25200, 1, 300, 0.6),
):
    _add("boxes", f"NonMaxSuppression_{_classes}x{_count}_keep{_keep}",
         suppressed(_count, _classes, _keep, _threshold))


def aligned(channels: int, size: int, count: int, out: int, samples: int) -> Make:
    """Regions of an image at one size."""
    def make(graph: Graph) -> str:
        regions = graph.feed(boxes(graph, 1, count, size * 14.0)[0])
        places = graph.feed(np.zeros(count, "int64"))
        return graph.node("RoiAlign", graph.data(1, channels, size, size), regions, places,
                          output_height=out, output_width=out, sampling_ratio=samples,
                          spatial_scale=1 / 16)

    return make


for _channels, _size, _count, _out, _samples in (
    (256, 50, 100, 7, 2), (256, 50, 20, 14, 2), (64, 100, 300, 7, 1), (256, 25, 10, 7, 0),
):
    _add("boxes", f"RoiAlign_{_channels}x{_size}_{_count}of{_out}",
         aligned(_channels, _size, _count, _out, _samples))


def _decoded(graph: Graph) -> str:
    """Centres and sizes as corners, by the anchors of a detector."""
    x, anchors = graph.data(1, 8732, 4), graph.feed(boxes(graph, 1, 8732, 1.0))
    centre, size = graph.nodes_with(2, "Split", x, axis=2, num_outputs=2)
    low, high = graph.nodes_with(2, "Split", anchors, axis=2, num_outputs=2)
    extent = graph.node("Sub", high, low)
    middle = graph.node("Add", low, graph.node("Mul", extent, graph.constant(0.5)))
    shift = graph.node("Mul", graph.node("Mul", centre, graph.constant(0.1)), extent)
    middle = graph.node("Add", middle, shift)
    grown = graph.node("Mul", extent,
                       graph.node("Exp", graph.node("Mul", size, graph.constant(0.2))))
    half = graph.node("Mul", grown, graph.constant(0.5))
    return graph.node("Concat", graph.node("Sub", middle, half), graph.node("Add", middle, half),
                      axis=2)


def _overlaps(graph: Graph) -> str:
    """Intersection over union of all pairs of boxes."""
    parts = []
    for shape in ((200, 1, 4), (1, 200, 4)):
        given = graph.feed(boxes(graph, 1, 200)[0].reshape(shape))
        parts.append(graph.nodes_with(2, "Split", given, axis=2, num_outputs=2))
    (low, high), (other_low, other_high) = parts
    zero = graph.constant(0.0)
    last = graph.constant([-1], "int64")

    def area(a: str, b: str) -> str:
        return graph.node("ReduceProd", graph.node("Max", graph.node("Sub", b, a), zero), last,
                          keepdims=0)

    shared = area(graph.node("Max", low, other_low), graph.node("Min", high, other_high))
    both = graph.node("Add", area(low, high), area(other_low, other_high))
    return graph.node("Div", shared, graph.node("Sub", both, shared))


_add("boxes", "decode_8732", _decoded)
_add("boxes", "overlaps_200x200", _overlaps)

# ---- gathering and scattering ----


def gathered(table: Sequence[int], indices: Sequence[int], axis: int = 0) -> Make:
    """Rows of a table, as an embedding takes them."""
    return lambda graph: graph.node(
        "Gather", graph.weights(*table), graph.indices(table[axis], *indices), axis=axis
    )


for _name, _table, _indices in (
    ("bert", (30522, 768), (1, 128)), ("gpt2", (50257, 384), (1, 1)),
    ("dlrm", (100000, 64), (2048,)),
    ("dlrm_small", (1000, 16), (4096,)), ("bias", (169, 12), (49, 49)),
    ("whisper", (10000, 384), (4, 50)),
):
    _add("gather", f"Gather_{_name}_{shape_name(_table)}_{shape_name(_indices)}",
         gathered(_table, _indices))
_add("gather", "Gather_axis1_1x8400x84_300", gathered((1, 8400, 84), (300,), 1))
_add("gather", "Gather_axis2_64x64x56_28", gathered((64, 64, 56), (28,), 2))


def _bag(graph: Graph) -> str:
    """The sum of some rows of a table, for each of a batch."""
    rows = graph.node("Gather", graph.weights(50000, 64), graph.indices(50000, 128, 32))
    return graph.node("ReduceSum", rows, graph.constant([1], "int64"), keepdims=0)


def _gathered_elements(graph: Graph) -> str:
    return graph.node("GatherElements", graph.data(1, 8400, 80), graph.indices(8400, 1, 300, 80),
                      axis=1)


def _gathered_nd(graph: Graph) -> str:
    return graph.node("GatherND", graph.data(128, 128, 64), graph.indices(128, 2000, 2))


def _scattered_nd(graph: Graph) -> str:
    places = graph.feed(graph.rng.permutation(4096)[:1000].reshape(1000, 1).astype("int64"))
    return graph.node("ScatterND", graph.data(4096, 64), places, graph.data(1000, 64))


def _pillars(graph: Graph) -> str:
    """Features of pillars put onto a map, as PointPillars does."""
    places = graph.feed(graph.rng.permutation(216 * 248)[:6000].reshape(6000, 1).astype("int64"))
    return graph.node("ScatterND", graph.constant(np.zeros((216 * 248, 64))), places,
                      graph.data(6000, 64))


def _scattered_elements(graph: Graph) -> str:
    places = graph.feed(np.argsort(graph.rng.random((1000, 64)), 0)[:200])
    return graph.node("ScatterElements", graph.data(1000, 64), places, graph.data(200, 64), axis=0)


def _added_elements(graph: Graph) -> str:
    """The sums of messages at the nodes of a graph network."""
    places = graph.indices(1000, 10000, 1)
    spread = graph.node("Expand", places, graph.constant([10000, 16], "int64"))
    return graph.node("ScatterElements", graph.constant(np.zeros((1000, 16))), spread,
                      graph.data(10000, 16), axis=0, reduction="add")


for _name, _make in (
    ("bag_50000x64_128x32", _bag), ("GatherElements_8400x80_300", _gathered_elements),
    ("GatherND_128x128x64_2000", _gathered_nd), ("ScatterND_4096x64_1000", _scattered_nd),
    ("ScatterND_pillars_6000x64", _pillars), ("ScatterElements_1000x64_200", _scattered_elements),
    ("ScatterElements_add_1000x16_10000", _added_elements),
):
    _add("gather", _name, _make)


# ---- counting and choosing ----


def cumulative(shape: Sequence[int], axis: int) -> Make:
    """Running sums."""
    return lambda graph: graph.node("CumSum", graph.data(*shape), graph.constant(axis, "int64"))


_add("scan", "CumSum_1x100000", cumulative((1, 100_000), 1))
_add("scan", "CumSum_64x1024_axis1", cumulative((64, 1024), 1))
_add("scan", "CumSum_1024x64_axis0", cumulative((1024, 64), 0))


def _one_hot(graph: Graph) -> str:
    return graph.node("OneHot", graph.indices(1000, 128), graph.constant(1000, "int64"),
                      graph.constant([0.0, 1.0]))


def _triangle(graph: Graph) -> str:
    return graph.node("Trilu", graph.data(12, 256, 256), upper=0)


def _non_zero(graph: Graph) -> str:
    return graph.node("NonZero", graph.feed((graph.rng.random((1, 8400)) < 0.05).astype("float32")))


def _compressed(graph: Graph) -> str:
    return graph.node("Compress", graph.data(8400, 84), graph.feed(graph.rng.random(8400) < 0.1),
                      axis=0)


def _distances(graph: Graph) -> str:
    """Of all points to all codes of a codebook, and the nearest code."""
    x = graph.data(512, 64)
    codes = graph.weights(1024, 64)
    products = graph.node("MatMul", x, graph.node("Transpose", codes, perm=(1, 0)))
    last = graph.constant([1], "int64")
    norms = graph.node("ReduceSumSquare", codes, last, keepdims=0)
    return graph.node("ArgMin",
                      graph.node("Sub", norms, graph.node("Mul", products, graph.constant(2.0))),
                      axis=1)


def _einsum(graph: Graph) -> str:
    return graph.node("Einsum", graph.data(8, 64, 128), graph.data(8, 64, 96),
                      equation="bnc,bnd->bcd")


for _name, _make in (
    ("OneHot_128of1000", _one_hot), ("Trilu_12x256x256", _triangle), ("NonZero_8400", _non_zero),
    ("Compress_8400x84", _compressed), ("nearest_code_512x1024", _distances),
    ("Einsum_bnc_bnd_bcd", _einsum),
):
    _add("scan", _name, _make)
