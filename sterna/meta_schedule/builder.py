"""Who compiles candidates: the tuner's worker processes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class BuilderResult:
    """What became of building a candidate."""

    artifact_path: str | None
    error_msg: str | None


class Builder:
    """Compiles candidates."""

    timeout_sec: float = 300.0

    @staticmethod
    def create(kind: str = "local", *args: Any, **options: Any) -> "Builder":
        """A builder by its name."""
        if kind != "local":
            raise ValueError(f"builder '{kind}' is unknown; there is local")
        return LocalBuilder(*args, **options)

    @staticmethod
    def of(given: "Builder | str") -> "Builder":
        """What a user gave: a builder, or its name."""
        return given if isinstance(given, Builder) else Builder.create(given)


@dataclass
class LocalBuilder(Builder):
    """Compiles on this machine, within a time for each candidate."""

    max_workers: int | None = None
    timeout_sec: float = 300.0
    f_build: Callable[..., Any] | str | None = None
    f_export: Callable[..., Any] | str | None = None
    initializer: Callable[[], None] | None = None

    def __post_init__(self) -> None:
        if self.f_build is not None or self.f_export is not None:
            raise ValueError(
                "candidates are built by relay.build in the tuner's own processes; f_build and "
                "f_export have no part in it"
            )


create = Builder.create
