"""What programs of old set for all tuners of a process."""

from dataclasses import dataclass


@dataclass
class GlobalScope:
    """Switches by name; they are kept as they are set, and nothing here depends on them."""

    in_tuning: bool = False
    silent: bool = False
    cuda_target_arch: str | None = None


GLOBAL_SCOPE = GlobalScope()
