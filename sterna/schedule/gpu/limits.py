"""What a GPU has room for, as its target says it."""

from dataclasses import dataclass

from sterna.schedule.kernel import ScheduleTarget

# What suits most devices where a target says nothing, and what all of CUDA's have.
THREADS, SHARED_BYTES = 256, 16384
CUDA_SHARED_BYTES = 49152


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits that schedules keep to."""

    threads: int
    """Of a block."""
    shared_bytes: int
    warp: int
    """Threads that run in step."""

    @classmethod
    def of(cls, target: ScheduleTarget | None) -> "Limits":
        """Those of a target."""
        attrs = {} if target is None else target.attrs

        def number(*names: str) -> int | None:
            found = (attrs.get(name) for name in names)
            return next((value for value in found if isinstance(value, int) and value > 0), None)

        most = number("max_threads_per_block", "max_num_threads") or THREADS
        is_cuda = target is not None and "cuda" in target.keys
        usual = CUDA_SHARED_BYTES if is_cuda else SHARED_BYTES
        return cls(
            threads=min(most, THREADS),
            shared_bytes=number("max_shared_memory_per_block") or usual,
            warp=number("thread_warp_size") or 1,
        )
