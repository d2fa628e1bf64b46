"""On which device a graph of torch.compile is computed, and where its inputs and results lie.

A graph has one home: the GPU that any of its tensors is on, else the processor. What lies
elsewhere, such as numbers that a program keeps as tensors of the processor, is brought there by
each call, and results go where eager mode puts them.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from sterna.contrib.torch_aliases import no_view
from sterna.relay.arrays import Array, to_numpy
from sterna.runtime import Device, NDArray, cuda
from sterna.support.errors import OpNotImplemented
from sterna.target import Target

# Where the tensors are that compiled code reads. PyTorch says cuda of AMD's GPUs too.
DEVICES = {"cpu"} if torch.version.hip else {"cpu", "cuda"}
# The target that follows the tensors.
THERE = "native"
HOST = torch.device("cpu")

# The types of elements that tensors share with arrays of NumPy.
_NUMPY_HAS = {
    torch.float32, torch.float64, torch.float16, torch.bool,
    torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8,
}
# How torch.set_float32_matmul_precision says that Tensor Cores may round float32.
_ROUNDED = {"high": " -tf32=1", "medium": " -tf32=1"}


def gpus_of(values: Iterable[Any]) -> list[torch.device]:
    """The GPUs that tensors are on, each once."""
    found = (each.device for each in values if isinstance(each, torch.Tensor))
    return list(dict.fromkeys(each for each in found if each.type == "cuda"))


def home_of(inputs: Sequence[Any], results: Iterable[str], target: str) -> torch.device:
    """Where a graph is computed whose results belong on these devices.

    A target that a user names for another kind of device has its program read from the processor.
    """
    if target != THERE and Target(target).kind.device_type != cuda().device_type:
        return HOST
    told = (torch.device(each) for each in results if each)
    homes = dict.fromkeys([*gpus_of(inputs), *(each for each in told if each.type == "cuda")])
    if len(homes) > 1:
        raise OpNotImplemented(
            f"a graph whose tensors are on {' and '.join(map(str, homes))}; move them to one GPU"
        )
    return next(iter(homes), HOST)


def target_at(home: torch.device, target: str) -> str:
    """The target of a graph: that of its home, unless a user names one."""
    if target != THERE or home == HOST:
        return target
    return f"cuda{_ROUNDED.get(torch.get_float32_matmul_precision(), '')}"


def device_at(home: torch.device) -> Device:
    """The runtime's name of a GPU."""
    return cuda(home.index or 0)


def _plain(tensor: Any) -> Any:
    """A tensor without holes; of complex numbers both parts. A token of effects comes as None."""
    if tensor is None:
        return torch.empty(0)
    tensor = tensor.detach()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.contiguous()


def array_of(tensor: Any) -> Any:
    """A plain tensor as a processor reads it soonest: an array of NumPy, if that has its type."""
    if tensor is not None and tensor.dtype in _NUMPY_HAS and tensor.is_cpu:
        return tensor.detach().contiguous().numpy(force=True)
    return brought(tensor, HOST)


def brought(tensor: Any, home: torch.device) -> Any:
    """A plain tensor where a graph is computed."""
    plain = _plain(tensor)
    return plain if plain.device == home else plain.to(home)


@contextmanager
def in_stream_of(home: torch.device) -> Iterator[None]:
    """Everything inside is done in the stream that PyTorch works in on that GPU."""
    stream = torch.cuda.current_stream(home).cuda_stream
    if not stream:
        yield
        return
    device = device_at(home)
    device.set_raw_stream(stream)
    try:
        yield
    finally:
        device.set_raw_stream(None)


def tensor_of(array: "Array | NDArray") -> Any:
    """A tensor over an array's memory."""
    if isinstance(array, NDArray):
        return torch.from_dlpack(array)
    if array.dtype.isbuiltin == 1:
        return torch.from_numpy(np.asarray(array))
    name = str(array.dtype)
    bits = np.asarray(array).view(np.int16 if array.itemsize == 2 else np.uint8)
    return no_view(torch.from_numpy(bits).view(getattr(torch, name)))


def number_of(array: "Array | NDArray") -> Any:
    """The number that an array of one element is."""
    return (to_numpy(array) if isinstance(array, NDArray) else array).item()


def attention_by_products(values: Iterable[Any]) -> Any:
    """Inside, what PyTorch records of attention on GPUs is products and softmax.

    Else it is the kernel that PyTorch would choose, with results for its backward kernel alone.
    """
    return sdpa_kernel(SDPBackend.MATH) if gpus_of(values) else nullcontext()


def autocast_kinds() -> list[str]:
    """The kinds of devices for which autocast is on."""
    return [kind for kind in sorted(DEVICES) if torch.is_autocast_enabled(kind)]


