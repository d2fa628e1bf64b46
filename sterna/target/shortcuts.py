"""Targets of well-known devices by the name of their model."""

from collections.abc import Mapping, Sequence
from typing import Any

from sterna.isa import instruction_sets
from sterna.isa.hexagon import VERSIONS, vector_features
from sterna.target.target import Target
from sterna.target.wording import unknown

Options = str | Sequence[str] | None

ARM_CPU, RISCV_CPU = "arm_cpu", "riscv_cpu"
"""Keys of targets that boards are listed by."""


def create(target: str | Mapping[str, Any] | Target) -> Target:
    """Another name of Target."""
    return Target(target)


def _make(*words: str, options: Options) -> Target:
    more = [options] if isinstance(options, str) else list(options or ())
    return Target(" ".join([*words, *more]))


def cuda(
    model: str = "unknown", arch: str | None = None, options: Options = None
) -> Target:
    """An NVIDIA GPU; without `arch` the one in this machine is asked."""
    words = ["cuda", f"-model={model}", *([f"-arch={arch}"] if arch else [])]
    return _make(*words, options=options)


def rocm(model: str = "unknown", options: Options = None) -> Target:
    """An AMD GPU."""
    return _make("rocm", f"-model={model}", options=options)


def mali(model: str = "unknown", options: Options = None) -> Target:
    """An ARM Mali GPU."""
    return _make("opencl", "-device=mali", f"-model={model}", options=options)


def bifrost(model: str = "unknown", options: Options = None) -> Target:
    """An ARM Mali GPU of the Bifrost family."""
    return _make("opencl", "-device=bifrost", f"-model={model}", options=options)


def intel_graphics(model: str = "unknown", options: Options = None) -> Target:
    """An Intel GPU."""
    return _make(
        "opencl", "-device=intel_graphics", f"-model={model}", "-thread_warp_size=16",
        options=options,
    )


def adreno(model: str = "unknown", options: Options = None, backend: str = "opencl") -> Target:
    """A Qualcomm Adreno GPU."""
    return _make(backend, "-keys=adreno,opencl,gpu", f"-model={model}", options=options)


def _boards(key: str) -> dict[str, str]:
    """The options of boards whose instruction sets have a key, by name."""
    sets = [made for made in instruction_sets().values() if key in made.keys]
    return {name: options for made in sets for name, options in made.boards.items()}


def arm_cpu(model: str = "unknown", options: Options = None) -> Target:
    """An ARM processor; for an unknown model give -mtriple and so on in `options`."""
    board = _boards(ARM_CPU).get(model, "")
    return _make("llvm", f"-device={ARM_CPU}", f"-model={model}", board, options=options)


def riscv_cpu(model: str = "sifive-u54", options: Options = None) -> Target:
    """A RISC-V processor."""
    boards = _boards(RISCV_CPU)
    if model not in boards:
        raise unknown(model, boards, f"It should be a model of {RISCV_CPU}")
    return _make("llvm", f"-device={RISCV_CPU}", f"-model={model}", boards[model], options=options)


# Microcontrollers by their processors; host is this machine, which runs the same C.
_MICRO = {
    "host": "", "esp32": "", "rp2040": "cortex-m0", "sam3x8e": "cortex-m3",
    "atsamd51": "cortex-m4", "cxd5602gg": "cortex-m4", "nrf52840": "cortex-m4",
    "stm32l4r5zi": "cortex-m4", "imxrt10xx": "cortex-m7", "stm32f746xx": "cortex-m7",
    "stm32h7xx": "cortex-m7", "mps2_an521": "cortex-m33", "nrf5340dk": "cortex-m33",
    "stm32u5xx": "cortex-m33", "mps3_an547": "cortex-m55", "zynq_mp_r5": "cortex-r5",
}


def micro(model: str = "host", options: Options = None) -> Target:
    """C for a microcontroller."""
    if model not in _MICRO:
        raise unknown(model, _MICRO, "It should be a model of micro")
    words = ["c", f"-model={model}", *([f"-mcpu={_MICRO[model]}"] if _MICRO[model] else [])]
    return _make(*words, options=options)


def hexagon(version: str = "v68", num_cores: int = 4, vtcm_capacity: int | None = None) -> Target:
    """A Qualcomm Hexagon DSP with its vector unit."""
    cpu = version.removeprefix("hexagon")
    if cpu not in VERSIONS:
        raise unknown(version, VERSIONS, "It should be a version of Hexagon")
    capacity = vtcm_capacity if vtcm_capacity is not None else VERSIONS[cpu]
    return Target({
        "kind": "hexagon",
        "mtriple": "hexagon",
        "mcpu": f"hexagon{cpu}",
        "mattr": vector_features(cpu),
        "num-cores": num_cores,
        "vtcm-capacity": capacity,
    })
