"""The targets of a build for several devices, and the device for what no annotation says."""

from collections.abc import Mapping, Sequence
from typing import Any

from sterna.ir.pass_context import PassContext
from sterna.runtime.device import DEVICE_TYPES, device_kind
from sterna.target.for_schedules import host_of, is_gpu
from sterna.target.target import Target

CPU = DEVICE_TYPES["cpu"]


class CompilationConfig:
    """One target for each kind of device; a GPU's host is there, too, for what it alone can do."""

    def __init__(self, targets: Sequence[Target], fallback: int = 0) -> None:
        self.by_device: dict[int, Target] = {}
        for target in targets:
            number = device_of(target)
            if number in self.by_device:
                raise ValueError(
                    f"two targets are for {device_kind(number)}: {self.by_device[number]} and "
                    f"{target}; give one for each kind of device"
                )
            self.by_device[number] = target
        gpus = [number for number, target in self.by_device.items() if is_gpu(target)]
        if len(gpus) > 1:
            raise ValueError(
                "a graph runs on the processor and on one kind of GPU; the targets name "
                f"{' and '.join(map(device_kind, gpus))}"
            )
        if fallback and fallback not in self.by_device:
            kinds = ", ".join(map(device_kind, self.by_device))
            raise ValueError(
                f"relay.fallback_device_type is {fallback} ({device_kind(fallback) or 'unknown'}), "
                f"and the build has targets for {kinds}"
            )
        self.fallback = fallback or (gpus or list(self.by_device))[0]
        """DLPack's number of the device for what no annotation says."""
        self.is_one = len(self.by_device) == 1
        """Whether all runs on one device that nobody says another of."""
        if gpus:
            self.by_device.setdefault(CPU, host_of(self.main))

    @property
    def device_types(self) -> list[int]:
        """DLPack's numbers of the kinds of devices that there are targets for."""
        return list(self.by_device)

    @property
    def main(self) -> Target:
        """The target of what no annotation says."""
        return self.by_device[self.fallback]


def device_of(target: Target) -> int:
    """DLPack's number of the device that a target's kernels run on."""
    return target.kind.device_type if is_gpu(target) else CPU


def make_compilation_config(
    context: PassContext | None, target: Any, target_host: Any = None
) -> CompilationConfig:
    """What PlanDevices is told: the targets, and the context's relay.fallback_device_type."""
    targets = _with_host(_targets(target), target_host)
    settings = (context or PassContext.current()).config
    fallback = settings.get("relay.fallback_device_type", 0) if len(targets) > 1 else 0
    return CompilationConfig(targets, fallback)


def _targets(target: Any) -> list[Target]:
    """The targets that a user means: one, a list, or a dict by device, or by device's name."""
    if isinstance(target, Mapping) and "kind" not in target and "tag" not in target:
        if not target:
            raise ValueError("the dict of targets is empty; give {'cpu': 'llvm', 'gpu': ...}")
        found = []
        for place, each in target.items():
            found.append(Target(each))
            _check_key(place, found[-1])
        return found
    if isinstance(target, list | tuple):
        if not target:
            raise ValueError("the list of targets is empty")
        return [Target(each) for each in target]
    return [Target(target)]


def _check_key(place: Any, target: Target) -> None:
    """Refuse a target under the name of another device; "gpu" names any GPU."""
    if place == "gpu" or isinstance(place, Target):
        fits = isinstance(place, Target) or is_gpu(target)
    else:
        number = DEVICE_TYPES.get(place) if isinstance(place, str) else getattr(
            place, "device_type", getattr(place, "value", place)
        )
        if not isinstance(number, int):
            raise ValueError(
                f"targets are given by device: 'cpu', 'gpu', a device or its number, not {place!r}"
            )
        fits = number == device_of(target)
    if not fits:
        raise ValueError(f"the target {target.kind.name} is given for another device, {place!r}")


def _with_host(targets: list[Target], host: Any) -> list[Target]:
    """The targets, whose GPUs have a host: the one that is given, else the processor's target."""
    cpu = next((each for each in targets if device_of(each) == CPU), None)
    around = Target(host) if host is not None else next(
        (each.host for each in targets if each.host is not None), cpu
    )
    if around is None:
        return targets
    return [
        each if each.host is not None or (not is_gpu(each) and host is None)
        else each.with_host(around)
        for each in targets
    ]
