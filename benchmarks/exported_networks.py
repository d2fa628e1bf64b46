"""Whole networks of torchvision and timm beside the fastest of other engines.

    python benchmarks/exported_networks.py FOLDER [--only NAME] [--threads 1 2] [--export-only]

Thirty networks with random weights are exported to ONNX files in FOLDER, those that are not there
yet, and timed as benchmarks/layers.py times layers. Exporting needs torch, torchvision and timm; a
run over files that are there needs none of them. Exits with 1 when a result differs or a network
cannot be compiled.
"""

import argparse
import importlib.util
import sys
import warnings
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from timing_run import Task, add_options, check_options, run, wanted

from sterna.support.write_aside import write_aside

OPSET = 17
# What exporting needs beside torch, by the names that pip and import know. With what these ask for,
# pip may bring another torch.
NEEDED = {
    "torchvision": "torchvision", "timm": "timm", "huggingface_hub": "huggingface_hub",
    "safetensors": "safetensors", "pyyaml": "yaml",
}


@dataclass(frozen=True)
class Network:
    """A network by the name that its library gives it, and the shape of its input."""

    library: str
    name: str
    shape: tuple[int, ...] = (1, 3, 224, 224)
    options: Mapping[str, Any] = field(default_factory=dict)
    """What it is made with, beside its weights."""

    @property
    def key(self) -> str:
        """timm/convnext_atto"""
        return f"{self.library}/{self.name}"

    def make(self) -> Any:
        """The module with weights that are the same in every run."""
        import torch

        torch.manual_seed(zlib.crc32(self.key.encode()))
        if self.library == "timm":
            import timm

            return timm.create_model(self.name, pretrained=False, **self.options).eval()
        import torchvision

        return torchvision.models.get_model(self.name, weights=None, **self.options).eval()


# Without the second head, which only training needs.
PLAIN = {"init_weights": True, "aux_logits": False}
RANDOM_BACKBONE = {"weights_backbone": None}

NETWORKS = [
    *(Network("torchvision", name) for name in (
        "alexnet", "resnet18", "resnet50", "resnext50_32x4d", "densenet121", "squeezenet1_1",
        "shufflenet_v2_x1_0", "mobilenet_v2", "mobilenet_v3_large", "mnasnet1_0",
        "efficientnet_b0", "regnet_y_400mf", "convnext_tiny", "swin_t", "vit_b_32",
    )),
    Network("torchvision", "googlenet", options=PLAIN),
    Network("torchvision", "inception_v3", (1, 3, 299, 299), PLAIN),
    Network("torchvision", "deeplabv3_mobilenet_v3_large", (1, 3, 256, 256), RANDOM_BACKBONE),
    Network("torchvision", "lraspp_mobilenet_v3_large", (1, 3, 256, 256), RANDOM_BACKBONE),
    Network("torchvision", "r3d_18", (1, 3, 8, 112, 112)),
    *(Network("timm", name) for name in (
        "convnextv2_atto", "deit_tiny_patch16_224", "efficientformer_l1", "ghostnet_100",
        "hrnet_w18_small", "levit_128", "poolformer_s12", "pvt_v2_b0", "repvgg_a0",
    )),
    Network("timm", "mobilevit_xs", (1, 3, 256, 256)),
]


def check_libraries() -> None:
    """Say what to install when a network must be exported and cannot be."""
    if importlib.util.find_spec("torch") is None:
        raise SystemExit("exporting networks needs PyTorch: pip install torch")
    missing = [name for name, module in NEEDED.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise SystemExit(
            f"exporting networks needs {', '.join(missing)}: pip install --no-deps "
            + " ".join(missing)
        )


@cache
def prepare_torchvision() -> Any:
    """Let torchvision be imported beside a torch that its own operators were not built for.

    Declared without code, these do for networks that do not call them. What declares them must
    live on; nothing is declared where they are there.
    """
    import torch

    try:
        import torchvision
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        declared = torch.library.Library("torchvision", "DEF")
        for operator in ("nms", "qnms"):
            signature = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            declared.define(f"{operator}{signature}")
        return declared
    return torchvision


def export(network: Network, path: Path) -> None:
    """Write a network as ONNX."""
    import torch

    prepare_torchvision()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about checks that tracing makes constant
        module = _first_result(network.make())
        given = (torch.zeros(network.shape),)
        write_aside(path, lambda aside: torch.onnx.export(
            module, given, str(aside), dynamo=False, opset_version=OPSET, input_names=["image"],
            output_names=["result"],
        ))
    onnx.checker.check_model(path)


def _first_result(module: Any) -> Any:
    """A module with one result: segmentation gives a dictionary."""
    import torch

    class FirstResult(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, x: Any) -> Any:
            made = self.module(x)
            return made["out"] if isinstance(made, dict) else made

    return FirstResult().eval()


def file_of(network: Network, folder: Path) -> Path:
    """Where a network lies."""
    return folder / f"{network.library}_{network.name}.onnx"


def task_of(network: Network, folder: Path) -> Task:
    """A network to be timed, exported when its turn comes."""
    def make(network: Network, _: Path) -> tuple[Path, Mapping[str, Any]]:
        path = file_of(network, folder)
        if not path.is_file():
            export(network, path)
        rng = np.random.default_rng(0)
        return path, {"image": rng.standard_normal(network.shape, dtype="float32")}

    return Task(network.key, network.library, "", False, partial(make, network))


def chosen(options: argparse.Namespace) -> list[Network]:
    """The networks that a run is about."""
    return [each for each in NETWORKS if wanted(each.key, options.only)][:: options.every]


def main() -> int:
    """Export networks and time them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="of the ONNX files")
    add_options(parser)
    parser.add_argument("--export-only", action="store_true", help="write the files and end")
    parser.set_defaults(seconds=0.3)
    options = parser.parse_args()
    check_options(parser, options)
    options.folder.mkdir(parents=True, exist_ok=True)
    if any(not file_of(each, options.folder).is_file() for each in chosen(options)):
        check_libraries()
    if not options.export_only:
        return run([task_of(each, options.folder) for each in NETWORKS], options, "Networks")
    for network in chosen(options):
        path = file_of(network, options.folder)
        if not path.is_file():
            export(network, path)
            print(f"{path}: {path.stat().st_size / 1e6:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
