"""Random numbers: the generator's known answers, distributions, keys and mistakes."""

from typing import Any

import numpy as np
import pytest

from sterna import relay
from sterna.ir.structural import structural_equal
from sterna.op.threefry import block_arrays
from sterna.relay.arrays import to_numpy
from sterna.relay.expr import Constant
from sterna.relay.op import find
from tests.op.harness import compiled

ONES = (1 << 64) - 1


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        (0, [0x09218EBDE6C85537, 0x55941F5266D86105, 0x4BD25E16282434DC, 0xEE29EC846BD2E40B]),
        (ONES, [0x29C24097942BBA1B, 0x0371BBFB0F6F4E11, 0x3C231FFA33F83A1C, 0xCD29113FDE32D168]),
    ],
)
def test_known_answers(word: int, answer: list[int]) -> None:
    assert block_arrays([word] * 4, [word] * 4) == answer


def reference(name: str, *operands: Any, **attrs: Any) -> Any:
    record = find(name)
    assert record.reference is not None
    values = record.attrs(**attrs) if record.attrs is not None else None
    return record.reference(values, *operands)


def key_of(seed: int) -> np.ndarray:
    made = relay.random.threefry_key(seed)
    assert isinstance(made, Constant)
    array = to_numpy(made.data)
    np.testing.assert_array_equal(array, reference("random.threefry_key", seed=seed))
    return array


def test_one_draw_is_two_draws() -> None:
    key = key_of(5)
    _, whole = reference("random.threefry_generate", key, out_shape=(24,))
    later, first = reference("random.threefry_generate", key, out_shape=(7,))
    _, second = reference("random.threefry_generate", later, out_shape=(16,))
    np.testing.assert_array_equal(whole[:7], first)
    np.testing.assert_array_equal(whole[8:], second)


def test_keys_that_were_split_share_no_numbers() -> None:
    key = key_of(1)
    seen = {int(word) for word in reference("random.threefry_generate", key, out_shape=(64,))[1]}
    left, right = reference("random.threefry_split", key)
    for child in (left, right, *reference("random.threefry_split", left)):
        words = reference("random.threefry_generate", child, out_shape=(64,))[1]
        assert seen.isdisjoint(words.tolist())
        seen |= set(words.tolist())


def test_distributions() -> None:
    count = 40000
    units = reference("random.seeded_uniform", shape=(count,), low=-1.0, high=3.0, seed=3)
    assert units.min() >= -1 and units.max() < 3
    assert abs(units.mean() - 1) < 0.03 and abs(units.var() - 16 / 12) < 0.03
    bell = reference("random.seeded_normal", shape=(count,), mean=2.0, scale=3.0, seed=4)
    assert abs(bell.mean() - 2) < 0.05 and abs(bell.std() - 3) < 0.05
    assert abs(np.mean(np.abs(bell - 2) < 3) - 0.6827) < 0.01
    assert abs(np.corrcoef(bell[::2], bell[1::2])[0, 1]) < 0.02
    flags = reference("random.bernoulli", np.full(count, 0.3), seed=1)
    assert abs(flags.mean() - 0.3) < 0.01
    weights = np.array([0.1, 0.0, 0.6, 0.3])
    chosen = reference("random.multinomial", key_of(9), weights, num_samples=4000)[1]
    np.testing.assert_allclose(np.bincount(chosen, minlength=4) / 4000, weights, atol=0.03)
    logits = np.log(weights[[0, 2, 3]])
    chosen = reference("random.seeded_multinomial", logits, num_samples=4000)
    np.testing.assert_allclose(np.bincount(chosen) / 4000, weights[[0, 2, 3]], atol=0.03)


def test_many_numbers_in_parallel() -> None:
    record = find("random.seeded_uniform")
    assert record.attrs is not None and record.reference is not None
    shape: Any = {"shape": (131, 77), "seed": 8}
    attrs = record.attrs(**shape)
    (got,) = compiled(record, attrs, [])
    np.testing.assert_allclose(got, record.reference(attrs), rtol=1e-6)


def test_seeds_tell_calls_apart() -> None:
    a, b = (reference("random.seeded_uniform", shape=(8,), seed=seed) for seed in (0, 1))
    assert not np.any(a == b)
    first, second = (relay.random.seeded_uniform((8,), seed=seed) for seed in (0, 0))
    assert structural_equal(first, second)
    assert not find("random.seeded_uniform").foldable


def test_mistakes() -> None:
    with pytest.raises(ValueError, match="a seed has at most 256 bits and is not negative"):
        relay.random.threefry_key(-1)
    short = relay.var("k", shape=(4,), dtype="uint64")
    with pytest.raises(ValueError, match=r"key is one that random\.threefry_key gives, not"):
        relay.random.threefry_split(short)
    with pytest.raises(ValueError, match="the dtype of real numbers is a float, not int32"):
        relay.random.seeded_normal((2,), dtype="int32")
