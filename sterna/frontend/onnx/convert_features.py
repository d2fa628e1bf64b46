"""Features for classic learning: operators of ai.onnx.ml, and counts of n-grams."""

from collections.abc import Iterator
from functools import reduce

import numpy as np

from sterna.frontend.calls import call, cast, constant, like, rank_of, reshape
from sterna.frontend.limits import expect_moderate
from sterna.frontend.onnx.checks import on_axis
from sterna.frontend.onnx.node import Node, converter
from sterna.relay.arrays import Array
from sterna.relay.expr import RelayExpr

ML = "ai.onnx.ml"


@converter("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(node: Node) -> RelayExpr:
    data = node[0] if rank_of(node[0]) > 1 else call("expand_dims", node[0], 0)
    at = on_axis(node, 1, rank_of(node[0]) - 1)
    return call("take", data, reshape(at, (-1,)), axis=rank_of(data) - 1, mode="wrap")


@converter("Binarizer", domain=ML)
def binarizer(node: Node) -> RelayExpr:
    data = node[0]
    above = call("greater", data, like(node.attr("threshold", 0.0), data))
    return call("where", above, like(1, data), like(0, data))


@converter("TfIdfVectorizer")
def tf_idf_vectorizer(node: Node) -> RelayExpr:
    """How often each n-gram of a pool is found in a row."""
    if "pool_int64s" not in node.attrs:
        raise ValueError("its pool is text; graphs compute with numbers")
    data = node[0] if rank_of(node[0]) == 2 else reshape(node[0], (1, -1))
    columns = node.attr("ngram_indexes")
    length = node.shape_of(data)[1]
    counts = call("zeros", (node.shape_of(data)[0], max(columns) + 1), "float32")
    for first, grams in _pools(node):
        expect_moderate(len(grams) * (max(columns) + 1), "ngram_indexes")
        places = np.zeros((len(grams), max(columns) + 1), "float32")
        places[np.arange(len(grams)), columns[first : first + len(grams)]] = 1
        steps = _steps(node, grams, length)
        expect_moderate(len(steps) * length, "max_skip_count")
        found = [_counts(data, grams, step, length) for step in steps]
        found = [count for count in found if count is not None]
        if found:
            total = reduce(lambda a, b: call("add", a, b), found)
            counts = call("add", counts, call("nn.matmul", total, constant(places)))
    made = _weighted(node, counts)
    return made if rank_of(node[0]) == 2 else reshape(made, (-1,))


def _pools(node: Node) -> Iterator[tuple[int, Array]]:
    """The n-grams of each size that counts, and the number of the first of them."""
    pool, begins = node.attr("pool_int64s"), node.attr("ngram_counts")
    sizes = range(node.attr("min_gram_length"), node.attr("max_gram_length") + 1)
    first = 0
    for size, (begin, end) in enumerate(zip(begins, [*begins[1:], len(pool)], strict=True), 1):
        grams = np.array(pool[begin:end], "int64").reshape(-1, size)
        if size in sizes and len(grams):
            yield first, grams
        first += len(grams)


def _steps(node: Node, grams: Array, length: int) -> range:
    """The distances between the elements of an n-gram; single elements have none."""
    size = grams.shape[1]
    if size == 1:
        return range(1, 2)
    return range(1, min(node.attr("max_skip_count") + 2, (length - 1) // (size - 1) + 1))


def _counts(data: RelayExpr, grams: Array, step: int, length: int) -> RelayExpr | None:
    """How often each n-gram is found in each row, by elements that lie step apart."""
    size = grams.shape[1]
    windows = length - (size - 1) * step
    if windows <= 0:
        return None
    places = np.arange(windows)[:, None] + step * np.arange(size)
    taken = call("take", cast(data, "int64"), constant(places), axis=1)
    equal = call("equal", call("expand_dims", taken, 2), constant(grams[None, None]))
    return call("sum", cast(call("all", equal, axis=(3,)), "float32"), axis=(1,))


def _weighted(node: Node, counts: RelayExpr) -> RelayExpr:
    mode = node.attr("mode")
    if mode not in ("TF", "IDF", "TFIDF"):
        raise ValueError(f"mode is TF, IDF or TFIDF, not '{mode}'")
    weights = node.attr("weights")
    if mode == "IDF":
        counts = call("minimum", counts, like(1, counts))
    if mode == "TF" or not weights:
        return counts
    return call("multiply", counts, constant(np.array(weights, "float32")))
