"""Trains the classifier that `sterna demo` shows, and writes it as ONNX.

    pip install torch && python examples/train_digits.py [FOLDER]

The pictures are digits that this program draws: a pen follows the strokes of a digit, written
large or small, slanted, shaky, in a thick or thin line, on noisy paper. The network never sees the
ones it is tested with. The same version of torch writes the same files again: all draws are seeded.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

Array = npt.NDArray[Any]
Stroke = Sequence[tuple[float, float]]

SIZE = 28
SEGMENTS = 36
TRAINING, TEST, SAMPLES = 30_000, 5_000, 40
CHANNELS = (8, 16, 24)
EPOCHS, BATCH = 5, 64


def arc(
    x: float, y: float, width: float, height: float, start: float, end: float
) -> list[tuple[float, float]]:
    """Points of an ellipse around (x, y), from one angle to another; 0 is right, 90 is down."""
    angles = np.radians(np.linspace(start, end, 14))
    return [(x + width * np.cos(a), y + height * np.sin(a)) for a in angles]


# The ways to write each digit, as strokes in a unit square whose y axis points down.
DIGITS: list[list[list[Stroke]]] = [
    [[arc(0.5, 0.5, 0.34, 0.48, -90, 270)], [arc(0.5, 0.5, 0.26, 0.5, -60, 300)]],
    [
        [[(0.5, 0.0), (0.5, 1.0)]],
        [[(0.28, 0.22), (0.52, 0.0), (0.52, 1.0)]],
        [[(0.28, 0.22), (0.52, 0.0), (0.52, 1.0)], [(0.26, 1.0), (0.78, 1.0)]],
    ],
    [
        [[*arc(0.5, 0.27, 0.32, 0.27, 190, 385), (0.16, 1.0), (0.86, 1.0)]],
        [[*arc(0.5, 0.27, 0.32, 0.27, 200, 405), *arc(0.3, 0.9, 0.12, 0.1, 40, 300), (0.88, 1.0)]],
    ],
    [
        [[*arc(0.45, 0.25, 0.33, 0.25, 200, 440), *arc(0.45, 0.74, 0.37, 0.26, -80, 155)]],
        [[(0.16, 0.0), (0.8, 0.0), (0.46, 0.4), *arc(0.46, 0.7, 0.36, 0.3, -80, 150)]],
    ],
    [
        [[(0.7, 1.0), (0.7, 0.0), (0.1, 0.68), (0.95, 0.68)]],
        [[(0.25, 0.0), (0.16, 0.55), (0.9, 0.55)], [(0.72, 0.12), (0.68, 1.0)]],
    ],
    [
        [[(0.82, 0.0), (0.26, 0.0), (0.2, 0.44), *arc(0.46, 0.68, 0.36, 0.31, -125, 145)]],
        [
            [(0.26, 0.0), (0.22, 0.45), *arc(0.46, 0.7, 0.36, 0.3, -120, 140)],
            [(0.26, 0.0), (0.8, 0.03)],
        ],
    ],
    [
        [
            [
                (0.68, 0.0),
                *arc(0.62, 0.6, 0.45, 0.55, 235, 180),
                *arc(0.5, 0.72, 0.33, 0.28, 180, 530),
            ]
        ],
        [[(0.5, 0.0), (0.22, 0.62), *arc(0.5, 0.74, 0.3, 0.26, 190, 540)]],
    ],
    [
        [[(0.12, 0.0), (0.88, 0.0), (0.4, 1.0)]],
        [[(0.12, 0.0), (0.88, 0.0), (0.44, 1.0)], [(0.32, 0.5), (0.84, 0.5)]],
        [[(0.14, 0.16), (0.14, 0.0), (0.86, 0.0), (0.5, 0.45), (0.4, 1.0)]],
    ],
    [
        [[*arc(0.5, 0.25, 0.27, 0.25, 90, -270), *arc(0.5, 0.75, 0.34, 0.25, -90, 270)]],
        [
            [
                *arc(0.5, 0.24, 0.3, 0.24, -30, -240),
                *arc(0.5, 0.75, 0.32, 0.25, -60, 210),
                (0.76, 0.13),
            ]
        ],
    ],
    [
        [[*arc(0.48, 0.28, 0.32, 0.28, 0, -350), (0.8, 0.3), (0.74, 1.0)]],
        [[*arc(0.48, 0.28, 0.32, 0.28, -20, -370), *arc(0.35, 0.5, 0.45, 0.5, -15, 110)]],
    ],
]


def segments_of(strokes: Sequence[Stroke]) -> Array:
    """A digit's strokes as SEGMENTS straight pieces, (SEGMENTS, 2, 2); the last is repeated."""
    pieces = []
    for stroke in strokes:
        points = np.asarray(stroke)
        steps = np.r_[0, np.cumsum(np.hypot(*np.diff(points, axis=0).T))]
        even = np.linspace(0, steps[-1], SEGMENTS // len(strokes) + 1)
        line = np.stack([np.interp(even, steps, points[:, i]) for i in range(2)], axis=1)
        pieces.append(np.stack([line[:-1], line[1:]], axis=1))
    joined = np.concatenate(pieces)
    return np.concatenate([joined, np.repeat(joined[-1:], SEGMENTS - len(joined), axis=0)])


def draw(labels: Array, random: np.random.Generator) -> Array:
    """A picture per label, (n, SIZE, SIZE) of uint8; 0 is paper, 255 is ink."""
    n = len(labels)
    ways = [[segments_of(way) for way in digit] for digit in DIGITS]
    lines = np.stack([ways[d][random.integers(len(ways[d]))] for d in labels]) - 0.5

    def between(low: float, high: float, *shape: int) -> Array:
        return random.uniform(low, high, (n, *shape))

    # A hand shakes: slow waves along both axes, another for each picture.
    phase, pace = between(0, 6.28, 2, 1, 1), between(3, 9, 2, 1, 1)
    wave = np.sin(lines[:, None, :, :, ::-1] * pace[..., None] + phase[..., None]).sum(1)
    lines = lines + between(0, 0.045, 1, 1, 1) * wave

    angle, slant = between(-0.25, 0.25), between(-0.3, 0.3)
    width, height = between(9, 15), between(14, 20)
    turn = np.stack([np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)], 1)
    lean = np.stack([width, -slant * height, np.zeros(n), height], 1)
    matrix = turn.reshape(n, 2, 2) @ lean.reshape(n, 2, 2)
    middle = (SIZE - 1) / 2 + between(-2.2, 2.2, 1, 1, 2)
    lines = np.einsum("nij,nspj->nspi", matrix, lines) + middle

    distance = distances(lines.astype("float32"))
    ink = np.clip(between(0.7, 1.7, 1, 1) + 0.5 - distance, 0, 1) * between(0.6, 1.0, 1, 1)
    noise = random.normal(0, 1, ink.shape) * between(0, 0.12, 1, 1)
    return np.asarray(np.clip(ink + noise, 0, 1) * 255).round().astype("uint8")


def distances(lines: Array) -> Array:
    """Each pixel's distance to the nearest of a picture's segments."""
    ys, xs = np.mgrid[:SIZE, :SIZE].astype("float32")
    nearest = np.full((len(lines), SIZE, SIZE), np.inf, "float32")
    for s in range(lines.shape[1]):
        (x, y), (dx, dy) = lines[:, s, 0].T, (lines[:, s, 1] - lines[:, s, 0]).T
        px, py = xs - x[:, None, None], ys - y[:, None, None]
        dx, dy = dx[:, None, None], dy[:, None, None]
        along = np.clip((px * dx + py * dy) / (dx * dx + dy * dy + 1e-9), 0, 1)
        np.minimum(nearest, (px - along * dx) ** 2 + (py - along * dy) ** 2, out=nearest)
    return np.sqrt(nearest)


def draw_many(count: int, seed: int) -> tuple[Array, Array]:
    """Pictures of all digits in equal numbers, and which they are."""
    random = np.random.default_rng(seed)
    labels = np.arange(count) % len(DIGITS)
    parts = [draw(labels[i : i + 500], random) for i in range(0, count, 500)]
    return np.concatenate(parts), labels


def as_input(pictures: Array) -> Array:
    """Pictures as the network takes them."""
    return pictures[:, None].astype("float32") / 255


def train(pictures: Array, labels: Array) -> dict[str, Array]:
    """The weights of a network that tells the digits apart, by name."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    layers: list[nn.Module] = []
    for inputs, outputs in zip((1, *CHANNELS), CHANNELS, strict=False):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    network = nn.Sequential(*layers, nn.Flatten(), nn.Linear(CHANNELS[-1] * 9, len(DIGITS)))

    data, wanted = torch.from_numpy(as_input(pictures)), torch.from_numpy(labels)
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3, weight_decay=1e-3)
    steps = EPOCHS * (len(data) // BATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for epoch in range(EPOCHS):
        total = 0.0
        for rows in torch.randperm(len(data))[: len(data) // BATCH * BATCH].split(BATCH):
            loss = nn.functional.cross_entropy(network(data[rows]), wanted[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / (len(data) // BATCH):.4f}")

    trained = [layer for layer in network if isinstance(layer, nn.Conv2d | nn.Linear)]
    names = [*(f"conv{i}" for i in range(len(CHANNELS))), "dense"]
    return {
        f"{name}.{kind}": getattr(layer, kind).detach().numpy()
        for name, layer in zip(names, trained, strict=True)
        for kind in ("weight", "bias")
    }


def as_onnx(weights: dict[str, Array]) -> onnx.ModelProto:
    """The network as an ONNX model, from pictures to the digits' probabilities."""
    nodes, value = [], "picture"
    for i in range(len(CHANNELS)):
        conv = [value, f"conv{i}.weight", f"conv{i}.bias"]
        nodes += [
            helper.make_node("Conv", conv, [f"conv{i}"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", [f"conv{i}"], [f"relu{i}"]),
            helper.make_node(
                "MaxPool", [f"relu{i}"], [f"pool{i}"], kernel_shape=[2, 2], strides=[2, 2]
            ),
        ]
        value = f"pool{i}"
    nodes += [
        helper.make_node("Flatten", [value], ["flat"]),
        helper.make_node("Gemm", ["flat", "dense.weight", "dense.bias"], ["dense"], transB=1),
        helper.make_node("Softmax", ["dense"], ["digit"], axis=1),
    ]
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    picture = helper.make_tensor_value_info("picture", 1, ["count", 1, SIZE, SIZE])
    digit = helper.make_tensor_value_info("digit", 1, ["count", len(DIGITS)])
    graph = helper.make_graph(nodes, "digits", [picture], [digit], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return model


def main(folder: Path) -> None:
    """Draw, train, test and write."""
    model = as_onnx(train(*draw_many(TRAINING, seed=1)))
    onnx.save(model, folder / "digits.onnx")
    pictures, labels = draw_many(TEST, seed=2)
    (found,) = ReferenceEvaluator(model).run(None, {"picture": as_input(pictures)})
    print(f"right on {np.mean(found.argmax(1) == labels):.2%} of {TEST} pictures it has not seen")
    pictures, labels = draw_many(SAMPLES, seed=3)
    np.savez_compressed(folder / "digits.npz", pictures=pictures, labels=labels.astype("uint8"))


if __name__ == "__main__":
    here = Path(__file__).resolve().parent.parent
    main(Path(sys.argv[1]) if sys.argv[1:] else here / "sterna" / "cli" / "digits")
