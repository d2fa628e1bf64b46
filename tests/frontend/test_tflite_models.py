"""Whole TensorFlow Lite files from elsewhere, held against LiteRT on random inputs.

Those of whole numbers agree to the last bit. A checkout alone does not have them.
"""

from collections.abc import Sequence

import numpy as np
import pytest

import sterna
from sterna.frontend.tflite.state import initial_state
from sterna.relay.arrays import Array
from sterna.relay.frontend import from_tflite
from sterna.relay.interpreter import interpret
from sterna.testing import require
from tests.frontend.test_tflite_quantized import HAS_MICRO, IS_MEASURED, expect_same
from tests.frontend.tflite_models import run_litert, run_micro
from tests.support import SHARED

FOLDER = SHARED / "models" / "tflite"

require(None if FOLDER.is_dir() else f"there are no models to import: {FOLDER}")

# How near floats come to the largest one.
FLOATS = {
    "audio/dtln_model_quant_1": 1e-5, "audio/kwt1_keyword_transformer": 1e-5,
    "mcu/mlperf_tiny_resnet8_float": 1e-5, "mcu/tflm_hello_world_float": 1e-5,
    "mcu/tflm_mnist_lstm_float": 1e-5, "text/movie_review_nl_classifier": 1e-5,
    "vision/mobilenet_v1_0.25_224_float": 1e-4, "vision/mp_face_detection_short_range": 1e-4,
    "vision/mp_hand_recrop": 1e-4, "mcu/tinyengine_mcunet_vww": 0.0,
}
# Floats that are quantised by their range on the way: one that falls to the other side of a half
# is a step of 1/255.
BY_RANGE = {"vision/fer_emotion_quantized": 0.05}
WHOLE = [
    "mcu/microwakeword_okay_nabu_v2", "mcu/mlperf_tiny_ad01_int8", "mcu/mlperf_tiny_kws_int8",
    "mcu/mlperf_tiny_resnet8_int8", "mcu/mlperf_tiny_streaming_wakeword_int8",
    "mcu/mlperf_tiny_vww_96_int8", "mcu/tflm_hello_world_int8", "mcu/tflm_micro_speech_int8",
    "mcu/tflm_mnist_lstm_int8", "vision/mobilenet_v1_0.25_128_quant_uint8",
]
# LiteRT refuses the first for the axis of its biases' scales and crashes on the second; the others
# take long in the interpreter.
IMPORTED = [
    "mcu/tflm_person_detect_int8", "mcu/tflm_keyword_scrambled_8bit", "audio/basic_pitch_nmp",
    "vision/deeplabv3_mnv2_dm05_pascal_quant", "vision/mp_selfie_segmentation",
    "vision/yolox_nano_dynrange",
]


def drawn(kind: object, seed: int) -> Array:
    """Elements of a tensor's type."""
    rng = np.random.default_rng(seed)
    shape, dtype = kind.concrete_shape, str(kind.dtype)  # type: ignore[attr-defined]
    if dtype.startswith("float"):
        return np.asarray(rng.standard_normal(shape).astype(dtype))
    ends = np.iinfo(dtype) if dtype not in ("int32", "int64") else None
    low, high = (ends.min, ends.max + 1) if ends else (0, 100)
    return np.asarray(rng.integers(low, high, shape).astype(dtype))


def both(
    name: str, rounding: str = "xnnpack", seed: int = 0
) -> tuple[Sequence[Array], list[Array]]:
    """What the graph and what LiteRT make of the same numbers."""
    data = (FOLDER / f"{name}.tflite").read_bytes()
    module, _ = from_tflite(data, rounding=rounding)
    states = initial_state(data)
    main = module["main"]
    given = {
        var.name_hint: states[var.name_hint] if var.name_hint in states
        else drawn(var.checked_type, seed + place)
        for place, var in enumerate(main.params)
    }
    made = interpret(main, *given.values())
    inputs = [array for key, array in given.items() if key not in states]
    wanted = run_litert(data, *inputs, reference=rounding == "tflm")
    mine = [np.asarray(one) for one in made] if isinstance(made, tuple | list) else [
        np.asarray(made)
    ]
    return mine[: len(wanted)], wanted


@pytest.mark.parametrize("name", [*FLOATS, *BY_RANGE])
def test_floats_come_near(name: str) -> None:
    near = {**FLOATS, **BY_RANGE}[name]
    for mine, theirs in zip(*both(name), strict=True):
        assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
        most = float(np.abs(theirs).max())
        np.testing.assert_allclose(mine, theirs, rtol=near, atol=near * most)


@pytest.mark.parametrize("name", WHOLE)
def test_whole_numbers_are_the_same(name: str) -> None:
    for mine, theirs in zip(*both(name), strict=True):
        if IS_MEASURED:
            expect_same(mine, theirs, exact=True)
        assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)


@pytest.mark.parametrize("name", [
    "mcu/mlperf_tiny_kws_int8", "mcu/mlperf_tiny_resnet8_int8", "mcu/mlperf_tiny_vww_96_int8",
])
def test_whole_numbers_are_those_of_reference_kernels(name: str) -> None:
    for mine, theirs in zip(*both(name, "tflm"), strict=True):
        expect_same(mine, theirs, exact=True)


@pytest.mark.skipif(not HAS_MICRO, reason="TFLite Micro is there for x86-64 alone")
@pytest.mark.parametrize("name", [
    *[name for name in WHOLE if name.startswith("mcu/")], "mcu/tflm_person_detect_int8",
    "mcu/tflm_keyword_scrambled_8bit", "mcu/tinyengine_mcunet_vww",
])
def test_whole_numbers_are_those_of_tflite_micro(name: str) -> None:
    data = (FOLDER / f"{name}.tflite").read_bytes()
    module, _ = from_tflite(data, rounding="tflm")
    states = initial_state(data)
    given = {
        var.name_hint: states.get(var.name_hint, drawn(var.checked_type, place))
        for place, var in enumerate(module["main"].params)
    }
    made = interpret(module["main"], *given.values())
    mine = made if isinstance(made, tuple | list) else [made]
    theirs = run_micro(data, *(array for key, array in given.items() if key not in states))
    assert theirs is not None
    for found, want in zip(mine[: len(theirs)], theirs, strict=True):
        expect_same(np.asarray(found), want, exact=True)


@pytest.mark.parametrize("name", IMPORTED)
def test_a_large_model_or_one_without_another_runtime_is_imported(name: str) -> None:
    module, _ = from_tflite(FOLDER / f"{name}.tflite")
    assert module["main"].params


def test_a_compiled_network_gives_the_same_bytes() -> None:
    data = (FOLDER / "mcu" / "tflm_hello_world_int8.tflite").read_bytes()
    compiled = sterna.compile(data)
    x = drawn(from_tflite(data)[0]["main"].params[0].checked_type, 5)
    (theirs,) = run_litert(data, x)
    if IS_MEASURED:
        np.testing.assert_array_equal(np.asarray(compiled(x)), theirs)
