"""Real pictures, sounds and bytes for whole models, in the form that each takes."""

import wave
from collections.abc import Callable
from pathlib import Path

import numpy as np
from onnx import TensorProto, numpy_helper

from sterna.relay.arrays import Array
from tests.support import SHARED

INPUTS = SHARED / "models" / "inputs"


def picture(name: str, height: int, width: int) -> Array:
    """A picture's pixels by channel, blue first, as floats from 0 to 255; one channel if gray."""
    data = (INPUTS / "images" / f"{name}.bmp").read_bytes()
    start = int.from_bytes(data[10:14], "little")
    columns, rows = (int.from_bytes(data[i : i + 4], "little") for i in (18, 22))
    channels = int.from_bytes(data[28:30], "little") // 8
    stride = -(-columns * channels // 4) * 4
    lines = np.frombuffer(data, np.uint8, rows * stride, start).reshape(rows, stride)[::-1]
    pixels = lines[:, : columns * channels].reshape(rows, columns, channels)
    down, across = np.arange(height) * rows // height, np.arange(width) * columns // width
    return pixels[down][:, across].transpose(2, 0, 1)[None].astype("float32")


def sound(count: int) -> Array:
    """So many samples of speech, from -1 to 1."""
    with wave.open(str(INPUTS / "audio" / "speech.wav")) as file:
        file.setpos(16000)
        samples = np.frombuffer(file.readframes(count), np.int16)
    return samples.astype("float32") / 32768


def spectrum() -> Array:
    """512 samples of speech as 257 complex numbers."""
    return np.fft.rfft(sound(512) * np.hanning(512))


def saved(name: str) -> Array:
    """An array that came with a model."""
    tensor = TensorProto.FromString((INPUTS / "expected" / f"{name}.pb").read_bytes())
    return numpy_helper.to_array(tensor)


def zeros(*shape: int) -> Array:
    return np.zeros(shape, "float32")


def complex_parts() -> Array:
    found = spectrum()
    return np.stack([found.real, found.imag], -1).astype("float32").reshape(1, 257, 1, 2)


def features() -> Array:
    """Numbers in the range of the logarithms of a spectrum."""
    return np.random.default_rng(0).uniform(-1, 1.5, (1, 80, 800)).astype("float32")


FEEDS: dict[str, Callable[[], dict[str, Array]]] = {
    "audio/basic_pitch_nmp": lambda: {
        "serving_default_input_2:0": sound(43844).reshape(1, -1, 1)},
    "audio/dtln_model_1": lambda: {
        "input_2": np.abs(spectrum()).astype("float32").reshape(1, 1, 257),
        "input_3": zeros(1, 2, 128, 2)},
    "audio/gtcrn_simple": lambda: {
        "mix": complex_parts(), "conv_cache": zeros(2, 1, 16, 16, 33),
        "tra_cache": zeros(2, 3, 1, 1, 16), "inter_cache": zeros(2, 1, 33, 16)},
    "audio/silero_vad_v6": lambda: {
        "input": sound(576).reshape(1, -1), "state": zeros(2, 1, 128)},
    "audio/smart_turn_v3.2_int8": lambda: {"input_features": features()},
    "audio/whisper80_preproc": lambda: {
        "waveforms": sound(4000).reshape(1, -1), "waveforms_lens": np.array([4000])},
    "ocr/PP-OCRv6_det_tiny": lambda: {"x": picture("squat", 64, 96) / 127.5 - 1},
    "ocr/PP-OCRv6_rec_tiny": lambda: {"x": picture("squat", 48, 80) / 127.5 - 1},
    "ocr/ch_ppocr_mobile_v2.0_cls": lambda: {"x": picture("squat", 48, 96) / 127.5 - 1},
    "text/byte_sb_bidi_lstm": lambda: {
        "input": np.load(INPUTS / "expected" / "byte_sb_bidi_lstm_io.npz")["input"]},
    "text/magika_standard_v3_3": lambda: {
        "bytes": np.frombuffer(Path(__file__).read_bytes()[:2048], np.uint8)[None].astype("int32")},
    "text/thai2rom_encoder": lambda: {
        "input_tensor": np.array([[5, 17, 30, 2, 44, 3]]), "input_lengths": np.array([6], "int32")},
    "vision/fastestdet": lambda: {"input.1": picture("cat", 352, 352) / 255},
    "vision/fns_candy_style": lambda: {"inputImage": picture("bird", 720, 720)},
    "vision/mnist_cntk": lambda: {"Input3": picture("mnist_nine", 28, 28)},
    "vision/mobilenet_v2_int8_qdq_maui": lambda: {
        "image": saved("mobilenet_v2_int8_qdq_maui_input_0")},
    "vision/squeezenet_fp16": lambda: {
        "data_0": (picture("resized_cat_224", 224, 224) - 120).astype("float16")},
    "vision/ultraface_rfb_320": lambda: {"input": (picture("grace_hopper", 240, 320) - 127) / 128},
    "vision/yunet_n_320": lambda: {"input": picture("grace_hopper", 320, 320)},
}
