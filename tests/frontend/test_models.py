"""Whole models from elsewhere, held against ONNX Runtime; a checkout alone does not have them."""

from typing import Any

import numpy as np
import onnx
import pytest

from sterna import relay
from sterna.relay.arrays import Array
from tests.frontend.support import run_imported, run_reference
from tests.support import SHARED

FOLDER = SHARED / "models" / "onnx"

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="there are no models to import")

# Shapes of the inputs whose dimensions the model leaves open, and how near the numbers come: in
# quantised models a rounding that falls the other way is a whole step.
MODELS: dict[str, tuple[dict[str, tuple[int, ...]], float]] = {
    "audio/basic_pitch_nmp.onnx": ({"serving_default_input_2:0": (1, 43844, 1)}, 1e-4),
    "audio/dtln_model_1.onnx": ({}, 1e-5),
    "audio/gtcrn_simple.onnx": ({}, 1e-5),
    "audio/smart_turn_v3.2_int8.onnx": ({"input_features": (1, 80, 800)}, 1e-2),
    "audio/whisper80_preproc.onnx": ({"waveforms": (1, 4000), "waveforms_lens": (1,)}, 1e-3),
    "ocr/PP-OCRv6_det_tiny.onnx": ({"x": (1, 3, 64, 96)}, 1e-5),
    "ocr/PP-OCRv6_rec_tiny.onnx": ({"x": (1, 3, 48, 80)}, 1e-4),
    "ocr/ch_ppocr_mobile_v2.0_cls.onnx": ({"x": (1, 3, 48, 96)}, 1e-5),
    "text/byte_sb_bidi_lstm.onnx": ({"input": (2, 7)}, 1e-5),
    "text/magika_standard_v3_3.onnx": ({"bytes": (1, 2048)}, 1e-4),
    "text/thai2rom_encoder.onnx": ({"input_tensor": (1, 6)}, 1e-5),
    "vision/fastestdet.onnx": ({}, 1e-5),
    "vision/mnist_cntk.onnx": ({}, 1e-5),
    "vision/mobilenet_v2_int8_qdq_maui.onnx": ({"image": (1, 3, 244, 244)}, 1e-2),
    "vision/squeezenet_fp16.onnx": ({}, 1e-2),
    "vision/ultraface_rfb_320.onnx": ({}, 1e-5),
    "vision/yunet_n_320.onnx": ({}, 1e-5),
}


def feeds_for(model: onnx.ModelProto, shapes: dict[str, Any]) -> dict[str, Array]:
    """Numbers for every input: normal ones, and small whole ones."""
    mod, _ = relay.frontend.from_onnx(model, shapes)
    rng = np.random.default_rng(0)
    feeds: dict[str, Array] = {}
    for param in mod["main"].params:
        kind = param.checked_type
        if kind.dtype.startswith("float"):
            feeds[param.name_hint] = rng.standard_normal(kind.concrete_shape).astype(kind.dtype)
        else:
            feeds[param.name_hint] = rng.integers(1, 5, kind.concrete_shape).astype(kind.dtype)
    return feeds


@pytest.mark.filterwarnings("ignore:the ONNX checker")
@pytest.mark.parametrize("name", MODELS)
def test_a_model_computes_what_its_runtime_does(name: str) -> None:
    shapes, tolerance = MODELS[name]
    model = onnx.load(FOLDER / name)
    feeds = feeds_for(model, shapes)
    want = run_reference(model, feeds)
    got = run_imported(model, feeds, shape=shapes)
    for mine, theirs in zip(got, want, strict=True):
        assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
        atol = tolerance * max(1.0, float(np.abs(theirs).max(initial=0)))
        np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=atol)
