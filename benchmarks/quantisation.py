"""Quantised networks beside their float ones: agreement of the top class, and time.

    python benchmarks/quantisation.py MODELS [--only NAME ...] [--samples 100] [--turns 15]
                                      [--keep-accuracy 1%]

MODELS is a folder with the float networks and the pictures that the cases below name; the network
of digits comes with Sterna. Of the pictures random crops, mirrored and of other brightness, are
made; half of them calibrate, half are judged. Each network is quantised by `sterna.quantize` and by
ONNX Runtime's static quantiser (QDQ, weights by channel), and both are compared with the float
network. With --keep-accuracy each is quantised once more, with layers left in float until no more
results of samples change, and a row says how many are the same and how many layers are in integers.
The network that tells what is in a file reads files of this Python and its packages.
Times are of one thread, by its own clock, float and int8 in turns. Needs onnxruntime, pillow and
torch.
"""

import argparse
import platform
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import thread_time
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import torch
from measure import ratio, seconds_of, turns_of
from onnx import TensorProto, helper, numpy_helper, version_converter
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from PIL import Image
from rows import Row, show_rows

import sterna
from sterna.cli.quantize import parse_fraction
from sterna.frontend.tflite.schema import read_model
from sterna.runtime import set_num_threads

Array = npt.NDArray[Any]
DIGITS = Path(sterna.__file__).parent / "cli" / "digits"
PICTURES = ("bird.bmp", "cat.bmp", "cats_and_dogs.jpg", "grace_hopper.bmp", "squat.bmp")
# Those that show one thing, so that a classifier has one answer.
SUBJECTS = ("bird.bmp", "cat.bmp", "grace_hopper.bmp")
# Kinds of files of which this many are read each, if there are as many.
FILES = (".txt", ".py", ".pyc", ".c", ".h", ".rst", ".md", ".html", ".css", ".js", ".json", ".xml",
         ".csv", ".pem", ".wav", ".png", ".gz", ".npz", ".so", ".f90")
MOST_OF_A_KIND, FEWEST_BYTES = 20, 256
OPSET = 13
LEAST_AGREEMENT, LEAST_RATIO = 0.99, 1.8
# Calls are timed together until they take so long.
LEAST_SECONDS = 1e-3
# What byte dot products multiply weights of int8 by: vpdpbusd unsigned bytes, sdot signed ones.
NATIVE_BYTES = "uint8" if platform.machine() in ("x86_64", "AMD64") else "int8"


@dataclass(frozen=True)
class Case:
    """A network, what it is run on, and where its classes lie in its first result."""

    name: str
    file: str
    samples: Callable[[Path, int], list[Array]]
    axis: int = -1
    first_class: int = 0
    least_object: float = 0.0
    """Places count at which the first number, the score of an object being there, is as large."""
    is_alone: bool = False
    """Whether there is one class, which a place is of if its score is above a half."""


# ---- samples ----


def digits(factor: float) -> Callable[[Path, int], list[Array]]:
    """Digits that were moved and got noise."""

    def made(folder: Path, count: int) -> list[Array]:
        pictures = np.load(DIGITS / "digits.npz")["pictures"].astype("float32") / 255
        rng = np.random.default_rng(0)
        found = []
        for index in range(count):
            moved = np.roll(pictures[index % len(pictures)], rng.integers(-2, 3, 2), (0, 1))
            noisy = moved + rng.normal(0, 0.03, moved.shape)
            found.append((noisy * factor).astype("float32").reshape(1, 1, 28, 28))
        return found

    return made


def crops(
    height: int, width: int, mean: float | Sequence[float], std: float, bgr: bool = False,
    pictures: Sequence[str] = PICTURES, least: float = 0.5,
) -> Callable[[Path, int], list[Array]]:
    """Random parts of pictures, some mirrored, darker or brighter: (1, 3, height, width)."""

    def made(folder: Path, count: int) -> list[Array]:
        rng = np.random.default_rng(0)
        opened = [Image.open(folder / "inputs" / "images" / name).convert("RGB")
                  for name in pictures]
        found = []
        for index in range(count):
            picture = opened[index % len(opened)]
            share = rng.uniform(least, 1.0)
            wide = int(min(picture.width, picture.height * width / height) * share)
            high = max(1, wide * height // width)
            left = int(rng.integers(0, picture.width - wide + 1))
            top = int(rng.integers(0, picture.height - high + 1))
            part = picture.resize((width, height), Image.Resampling.BILINEAR,
                                  (left, top, left + wide, top + high))
            numbers = np.asarray(part, "float32") * rng.uniform(0.7, 1.2)
            numbers = np.clip(numbers, 0, 255)[:, :: -1 if rng.integers(2) else 1]
            numbers = numbers[..., ::-1] if bgr else numbers
            numbers = (numbers - np.asarray(mean, "float32")) / std
            found.append(np.ascontiguousarray(numbers.transpose(2, 0, 1)[None], "float32"))
        return found

    return made


def beginnings_and_ends(length: int, filling: int) -> Callable[[Path, int], list[Array]]:
    """The first and the last bytes of files, half of the length each: (1, length)."""

    def made(folder: Path, count: int) -> list[Array]:
        rng = np.random.default_rng(0)
        by_kind: dict[str, list[Path]] = {kind: [] for kind in FILES}
        for path in sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.*")):
            if path.suffix in by_kind and path.is_file() and path.stat().st_size >= FEWEST_BYTES:
                by_kind[path.suffix].append(path)
        chosen = [paths[index] for paths in by_kind.values()
                  for index in rng.permutation(len(paths))[:MOST_OF_A_KIND]]
        return [part(chosen[index].read_bytes().strip())
                for index in rng.permutation(len(chosen))[:count]]

    def part(content: bytes) -> Array:
        half = length // 2
        found = np.full((1, length), filling, "int32")
        first, last = (np.frombuffer(end, "uint8") for end in (content[:half], content[-half:]))
        found[0, : len(first)] = first
        found[0, length - len(last) :] = last
        return found

    return made


VISION = "onnx/vision"
CASES = [
    Case("digits", "", digits(1.0)),
    Case("mnist_cntk", f"{VISION}/mnist_cntk.onnx", digits(255.0)),
    Case("squeezenet", f"{VISION}/squeezenet_fp16.onnx",
         crops(224, 224, (104.0, 117.0, 123.0), 1.0, True, SUBJECTS, 0.75), axis=1),
    Case("ultraface", f"{VISION}/ultraface_rfb_320.onnx", crops(240, 320, 127.0, 128.0)),
    Case("yunet", f"{VISION}/yunet_n_320.onnx", crops(320, 320, 0.0, 1.0, bgr=True), is_alone=True),
    Case("fastestdet", f"{VISION}/fastestdet.onnx", crops(352, 352, 0.0, 255.0, bgr=True),
         axis=1, first_class=5, least_object=0.3),
    Case("mobilenet_v1", "tflite/vision/mobilenet_v1_0.25_224_float.tflite",
         crops(224, 224, 127.5, 127.5, pictures=SUBJECTS, least=0.75)),
    Case("mtcnn_onet", "torch/state_dict/facenet_mtcnn_onet.pt",
         crops(48, 48, 127.5, 128.0, least=0.15)),
    Case("magika", "onnx/text/magika_standard_v3_3.onnx", beginnings_and_ends(2048, 256)),
    Case("ppocr_cls", "onnx/ocr/ch_ppocr_mobile_v2.0_cls.onnx", crops(48, 192, 127.5, 127.5)),
]


# ---- networks ----


def onet(weights: Path) -> onnx.ModelProto:
    """The last of the three networks that find faces (MTCNN): whether one is there, and where."""
    given = {name: value.numpy() for name, value in torch.load(weights).items()}
    nodes: list[onnx.NodeProto] = []

    def add(kind: str, data: str, *constants: str, **attributes: Any) -> str:
        name = f"{kind}{len(nodes)}"
        nodes.append(helper.make_node(kind, [data, *constants], [name], name, **attributes))
        return name

    x = "picture"
    for layer, pool in ((1, 3), (2, 3), (3, 2), (4, 0)):
        x = add("Conv", x, f"conv{layer}.weight", f"conv{layer}.bias")
        given[f"prelu{layer}.weight"] = given[f"prelu{layer}.weight"].reshape(-1, 1, 1)
        x = add("PRelu", x, f"prelu{layer}.weight")
        if pool:
            x = add("MaxPool", x, kernel_shape=[pool] * 2, strides=[2, 2], ceil_mode=1)
    x = add("Flatten", add("Transpose", x, perm=[0, 3, 2, 1]))
    x = add("PRelu", add("Gemm", x, "dense5.weight", "dense5.bias", transB=1), "prelu5.weight")
    heads = [add("Gemm", x, f"dense6_{n}.weight", f"dense6_{n}.bias", transB=1) for n in (1, 2, 3)]
    heads[0] = add("Softmax", heads[0], axis=1)
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in heads]
    picture = helper.make_tensor_value_info("picture", TensorProto.FLOAT, [1, 3, 48, 48])
    constants = [numpy_helper.from_array(value, name) for name, value in given.items()]
    graph = helper.make_graph(nodes, "onet", [picture], outputs, constants)
    model: onnx.ModelProto = onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8))
    return model


def mobilenet(file: Path) -> onnx.ModelProto:
    """A TFLite network of convolutions, one behind the other, with its channels first."""
    model = read_model(file.read_bytes())
    tensors = model.subgraphs[0].tensors
    nodes: list[onnx.NodeProto] = []
    constants: list[onnx.TensorProto] = []

    def constant(index: int, order: tuple[int, ...]) -> str:
        kind = tensors[index]
        value = np.frombuffer(model.bytes_of(kind) or b"", "float32").reshape(kind.shape)
        turned = np.ascontiguousarray(value.transpose(order))
        constants.append(numpy_helper.from_array(turned, kind.name))
        return kind.name

    def add(kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{kind}{len(nodes)}"
        nodes.append(helper.make_node(kind, inputs, [name], name, **attributes))
        return name

    constants += [numpy_helper.from_array(np.array(end, "float32"), name)
                  for name, end in (("low", 0), ("high", 6))]
    x = "picture"
    for each in model.subgraphs[0].operators:
        options = each.options()
        if each.kind.endswith("CONV_2D"):
            is_depthwise = each.kind.startswith("DEPTHWISE")
            weight = constant(each.inputs[1], (3, 0, 1, 2) if is_depthwise else (0, 3, 1, 2))
            steps = [options["stride_h"], options["stride_w"]]
            channels = tensors[each.outputs[0]].shape[-1]
            x = add("Conv", x, weight, constant(each.inputs[2], (0,)), auto_pad="SAME_UPPER",
                    strides=steps, group=channels if is_depthwise else 1)
            x = add("Clip", x, "low", "high") if options["activation"] else x
        elif each.kind == "AVERAGE_POOL_2D":
            x = add("GlobalAveragePool", x)
        elif each.kind == "SOFTMAX":
            x = add("Softmax", add("Flatten", x), axis=1)
    outputs = [helper.make_tensor_value_info(x, TensorProto.FLOAT, None)]
    picture = helper.make_tensor_value_info("picture", TensorProto.FLOAT, [1, 3, 224, 224])
    graph = helper.make_graph(nodes, "mobilenet", [picture], outputs, constants)
    made: onnx.ModelProto = onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8))
    return made


def float_network(case: Case, folder: Path, path: Path) -> None:
    """Write a network in float32, of one picture."""
    file = folder / case.file if case.file else DIGITS / "digits.onnx"
    readers: dict[str, Callable[[Path], onnx.ModelProto]] = {
        ".onnx": onnx.load, ".pt": onet, ".tflite": mobilenet,
    }
    model = readers[file.suffix](file)
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT16:
            wide = numpy_helper.to_array(tensor).astype("float32")
            tensor.CopyFrom(numpy_helper.from_array(wide, tensor.name))
    for entry in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        if entry.type.tensor_type.elem_type == TensorProto.FLOAT16:
            entry.type.tensor_type.elem_type = TensorProto.FLOAT
    if model.opset_import[0].version < OPSET:
        model = version_converter.convert_version(model, OPSET)
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = [entry for entry in model.graph.input if entry.name not in constants]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    model.ir_version = max(model.ir_version, 8)
    onnx.save(model, path)


class Reader(CalibrationDataReader):  # type: ignore[misc]
    """Samples as ONNX Runtime's quantiser asks for them."""

    def __init__(self, name: str, samples: Sequence[Array]) -> None:
        self.left = iter([{name: sample} for sample in samples])

    def get_next(self) -> Any:
        return next(self.left, None)


def quantize_by_peer(source: Path, path: Path, name: str, samples: Sequence[Array]) -> None:
    """ONNX Runtime's static quantiser as its manual advises, or by tensor where it fails so."""
    prepared = path.with_suffix(".prepared.onnx")
    quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
    for per_channel in (True, False):
        try:
            quantize_static(
                str(prepared), str(path), Reader(name, samples), per_channel=per_channel,
                activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
            )
            return
        except ValueError as error:  # of a bias that has more than one axis
            print(f"  ONNX Runtime's quantiser, weights by channel: {error}")


def session(path: Path) -> Callable[[Array], Array]:
    """A network as ONNX Runtime runs it."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    made = onnxruntime.InferenceSession(str(path), options)
    name = made.get_inputs()[0].name
    return lambda sample: np.asarray(made.run(None, {name: sample})[0])


def agreement(case: Case, expected: Sequence[Array], found: Sequence[Array]) -> float:
    """The share of places at which the top class is the same."""
    same = [(_top(case, a) == _top(case, b))[_counts(case, a)]
            for a, b in zip(expected, found, strict=True)]
    return float(np.mean(np.concatenate([part.ravel() for part in same])))


def _counts(case: Case, value: Array) -> Array:
    if not case.first_class:
        return np.ones(_top(case, value).shape, bool)
    return np.asarray(np.moveaxis(value, case.axis, -1)[..., 0] >= case.least_object)


def _top(case: Case, value: Array) -> Array:
    if case.is_alone:
        return np.asarray(value > 0.5)
    return np.asarray(np.moveaxis(value, case.axis, -1)[..., case.first_class :].argmax(-1))


def decibels(expected: Sequence[Array], found: Sequence[Array]) -> float:
    """The ratio of signal to noise of the first result."""
    noise = sum(float(((a.astype("float64") - b) ** 2).sum())
                for a, b in zip(expected, found, strict=True))
    power = sum(float((a.astype("float64") ** 2).sum()) for a in expected)
    return float(10 * np.log10(power / max(noise, 1e-30)))


def kept_or_temporary(keep: Path | None) -> AbstractContextManager[str]:
    """A folder for the networks of a case."""
    if keep is None:
        return tempfile.TemporaryDirectory()
    keep.mkdir(parents=True, exist_ok=True)
    return nullcontext(str(keep))


def measure(
    case: Case, folder: Path, count: int, turns: int, keep: Path | None = None
) -> list[Row]:
    """Quantise a network, judge it and time it."""
    samples = case.samples(folder, 2 * count)
    given, judged = samples[::2], samples[1::2]
    with kept_or_temporary(keep) as place:
        source, own, other = (Path(place) / f"{n}.onnx" for n in ("float", "own", "other"))
        float_network(case, folder, source)
        made = sterna.quantize(str(source), given, activations=NATIVE_BYTES)
        onnx.save(made.model, own)
        plain = session(source)
        expected = [plain(sample) for sample in judged]
        name = onnxruntime.InferenceSession(str(source)).get_inputs()[0].name
        quantize_by_peer(source, other, name, given)
        peer, elsewhere = session(other), session(own)
        theirs = [peer(sample) for sample in judged]
        there = [elsewhere(sample) for sample in judged]
        shapes = {name: judged[0].shape}
        fast, slow = (sterna.compile(str(path), shapes=shapes) for path in (own, source))
        ours = [first(fast(sample)) for sample in judged]
        print(f"{case.name}: agreement {agreement(case, expected, ours):.4f} (in ONNX Runtime "
              f"{agreement(case, expected, there):.4f}), its quantiser "
              f"{agreement(case, expected, theirs):.4f}; {decibels(expected, ours):.1f} dB and "
              f"{decibels(expected, theirs):.1f} dB", flush=True)
        x = judged[0]
        calls: dict[str, Callable[..., Any]] = {
            "float": slow, "int8": fast, "peer float": plain, "peer int8": peer,
        }
        times = turns_of({
            key: partial(seconds_of_each, partial(call, x)) for key, call in calls.items()
        }, turns)
    medians = {key: float(np.median(values)) * 1e3 for key, values in times.items()}
    print("  " + ", ".join(f"{key} {value:.3f} ms" for key, value in medians.items()), flush=True)
    own_share, their_share = agreement(case, expected, ours), agreement(case, expected, theirs)
    return [
        Row(f"{case.name}: top class as in float", 100 * own_share, "%",
            100 * max(LEAST_AGREEMENT, their_share), beside=f"ONNX Runtime {their_share:.2%}"),
        Row(f"{case.name}: int8 over float", ratio(times, "float", "int8"), "x", LEAST_RATIO,
            beside=f"{medians['int8']:.3f} ms; ONNX Runtime {medians['peer int8']:.3f} ms"),
    ]


def seconds_of_each(call: Callable[[], object]) -> float:
    """Seconds of a call by the thread's clock, whose own time counts where calls are short."""
    count = max(1, int(LEAST_SECONDS / seconds_of(call, clock=thread_time)))

    def several() -> None:
        for _ in range(count):
            call()

    return seconds_of(several, clock=thread_time) / count


def measure_kept(case: Case, folder: Path, count: int, loss: float) -> Row:
    """Quantise a network so that at most a share of its results change."""
    samples = case.samples(folder, 2 * count)
    given, judged = samples[::2], samples[1::2]
    with tempfile.TemporaryDirectory() as place:
        source, own = (Path(place) / f"{n}.onnx" for n in ("float", "own"))
        float_network(case, folder, source)
        made = sterna.quantize(str(source), given, activations=NATIVE_BYTES, keep_accuracy=loss)
        onnx.save(made.model, own)
        plain = session(source)
        kept = sterna.compile(str(own), shapes={
            onnxruntime.InferenceSession(str(source)).get_inputs()[0].name: given[0].shape})
        others = agreement(
            case, [plain(sample) for sample in judged], [first(kept(sample)) for sample in judged])
    layers = made.report.layers
    whole, share = sum(layer.in_integers for layer in layers), 1 - made.report.agreement.loss
    left = [layer.name for layer in layers if not layer.in_integers]
    print(f"{case.name}: {len(left)} layers in float: {', '.join(left)}", flush=True)
    return Row(
        f"{case.name}: as in float, at most {loss:.0%} lost", 100 * share, "%", 100 * (1 - loss),
        beside=f"{whole} of {len(layers)} layers in integers; other samples {others:.2%}")


def first(result: Any) -> Array:
    """The first of a network's results."""
    return np.asarray(result[0] if isinstance(result, tuple) else result)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path)
    parser.add_argument("--only", nargs="*", default=[case.name for case in CASES])
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--keep", type=Path, help="a folder for the networks that are made")
    parser.add_argument("--keep-accuracy", type=parse_fraction, metavar="1%",
                        help="also leave layers in float until no more results change")
    parser.add_argument("--markdown", action="store_true", help="print a table of a page")
    options = parser.parse_args()
    set_num_threads(1)
    onnxruntime.set_default_logger_severity(3)
    rows = [row for case in CASES if case.name in options.only
            for row in measure(case, options.models, options.samples, options.turns,
                               options.keep and options.keep / case.name)]
    if options.keep_accuracy is not None:
        rows += [measure_kept(case, options.models, options.samples, options.keep_accuracy)
                 for case in CASES if case.name in options.only]
    return show_rows("Quantised networks", rows, options.markdown)


if __name__ == "__main__":
    sys.exit(main())
