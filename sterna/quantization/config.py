"""The settings of relay.quantize, by the names that users of the classic interface know."""

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, fields
from types import TracebackType
from typing import Any

CHOICES = {
    "calibrate_mode": ("global_scale", "kl_divergence", "percentile"),
    "weight_scale": ("power2", "max"),
    "dtype_input": ("int8",),
    "dtype_weight": ("int8",),
    "dtype_activation": ("int32",),
    "rounding": ("UPWARD", "TONEAREST"),
    "partition_conversions": ("disabled",),
}


@dataclass(frozen=True)
class QConfig:
    """How `quantize` quantises; a context in which it does so."""

    nbit_input: int = 8
    nbit_weight: int = 8
    nbit_activation: int = 32
    dtype_input: str = "int8"
    dtype_weight: str = "int8"
    dtype_activation: str = "int32"
    calibrate_mode: str = "global_scale"
    global_scale: float = 8.0
    """What the largest integer stands for, of every tensor, by the mode global_scale."""
    weight_scale: str = "power2"
    skip_dense_layer: bool = True
    skip_conv_layers: Sequence[int] | None = (0,)
    """The places of convolutions, counted from 0, that stay in float."""
    do_simulation: bool = False
    """Give floats that are rounded as integers would be, not integers."""
    round_for_shift: bool = True
    """Accepted: sums are brought to the next scale by a factor rounded to even, not by shifts."""
    debug_enabled_ops: Sequence[str] | None = None
    """The operators that are quantised, where not all are."""
    rounding: str = "UPWARD"
    """Accepted: integers are the nearest ones, halves the even ones, as ONNX has it."""
    calibrate_chunk_by: int = -1
    """How many tensors one run of the dataset shows at most; below 1: all."""
    partition_conversions: str = "disabled"
    store_lowbit_output: bool = True
    """Accepted: what is carried between layers has 8 bits."""

    def __post_init__(self) -> None:
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise ValueError(
                    f"qconfig: {name} is {' or '.join(known)}, not {getattr(self, name)!r}"
                )
        for name in ("nbit_input", "nbit_weight"):
            if not 2 <= getattr(self, name) <= 8:
                raise ValueError(f"qconfig: {name} is from 2 to 8, not {getattr(self, name)!r}")
        if self.nbit_activation != 32:
            raise ValueError(
                f"qconfig: nbit_activation is 32, the width of sums, not {self.nbit_activation!r}"
            )
        if not self.global_scale > 0:
            raise ValueError(f"qconfig: global_scale is above 0, not {self.global_scale!r}")

    def __enter__(self) -> "QConfig":
        _stack.set((*_stack.get(), self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _stack.set(_stack.get()[:-1])


_stack: ContextVar[tuple[QConfig, ...]] = ContextVar("qconfig", default=())


def qconfig(**settings: Any) -> QConfig:
    """Settings to quantise by: `with qconfig(calibrate_mode="percentile"): quantize(...)`."""
    known = [field.name for field in fields(QConfig)]
    strange = sorted(set(settings) - set(known))
    if strange:
        raise ValueError(f"qconfig has no '{strange[0]}'; it has {', '.join(known)}")
    return QConfig(**settings)


def current_qconfig() -> QConfig:
    """The settings of the innermost context, or the usual ones."""
    stack = _stack.get()
    return stack[-1] if stack else QConfig()
