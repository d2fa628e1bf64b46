"""What a GPU can do at most: copies as measured, arithmetic as its processors and clock allow."""

from functools import cache

from sterna.runtime import Device, PackedFunc
from sterna.runtime.ndarray import empty
from sterna.runtime.node_times import Bounds
from sterna.runtime.timing import make_evaluator

# Operations per clock of one multiprocessor, by the capability of the device: in float32, in
# float16 by Tensor Cores, and of bytes by them. A multiply-add is two.
_PER_CLOCK = {
    "5.3": (256, 512, None), "6.0": (128, 256, None), "6.1": (256, None, 1024),
    "7.0": (128, 1024, 512), "7.2": (128, 1024, 2048), "7.5": (128, 1024, 2048),
    "8.0": (128, 2048, 4096), "8.6": (256, 1024, 2048), "8.7": (256, 1024, 2048),
    "8.9": (256, 1024, 2048), "9.0": (256, 4096, 8192), "10.0": (256, 8192, 16384),
    "12.0": (256, 1024, 2048),
}

# Copies that caches hold, and copies that they do not.
_SIZES = (1 << 20, 1 << 24, 1 << 28)


@cache
def bounds_of_gpu(device: Device) -> Bounds:
    """The bytes per second that a device copies, and what is known of its arithmetic."""
    rates = [(2.0 * size, 2e-9 * size / _copy_seconds(device, size)) for size in _SIZES]
    clocks = (device.max_clock_rate or 0) * 1e3 * (device.multi_processor_count or 0)
    single, half, byte = _PER_CLOCK.get(device.compute_version or "", (None, None, None))
    return Bounds(
        single and single * clocks * 1e-9, rates, rates, half and half * clocks * 1e-9,
        byte and byte * clocks * 1e-9,
    )


def _copy_seconds(device: Device, size: int) -> float:
    """By the device's own clock."""
    source, target = empty((size,), "int8", device), empty((size,), "int8", device)
    timed = make_evaluator(PackedFunc(lambda: source.copyto(target)), device, number=20, repeat=3)
    return max(timed().min, 1e-9)
