"""What a packed function wants of an argument that is an array: the words of check_array."""

from dataclasses import dataclass
from typing import Self

from sterna.ir import build
from sterna.ir.expr import INT32, Call, Expr, IntImm, StringImm
from sterna.support.dtype import DataType
from sterna.support.errors import InternalError

SIGNATURE_BYTES = 512
"""The longest signature in an error: those of many arguments are cut."""
MESSAGE_BYTES = 1024
"""The longest error."""

NO_ARRAY = ("TypeError", " must be an array")
WRONG_NDIM = ("ValueError", " must have ")
WRONG_DTYPE = ("TypeError", " must be of type ")
WRONG_SHAPE = ("ValueError", " has a wrong shape: ")
WRONG_DEVICE = ("ValueError", " must be on ")
HAS_GAPS = ("ValueError", " must be contiguous")
IS_READ_ONLY = ("ValueError", " is written to, but the array is read-only")

READ_ONLY_MARK = 0x52454144
"""What the runtime puts into the header of an array that its owner forbids to write to."""

CPU = 1
"""The type of device that a processor's memory has."""

_DEVICES = {
    CPU: "the CPU", 2: "a CUDA device", 4: "an OpenCL device", 7: "a Vulkan device",
    8: "a Metal device", 10: "a ROCm device", 15: "a WebGPU device",
}

_INT64 = DataType("int64")


@dataclass(frozen=True, slots=True)
class WantedArray:
    """An array without gaps on a device, of a type and a shape."""

    signature: str
    """How the function is called, as an error begins."""
    name: str
    dtype: DataType
    extents: tuple[int, ...]
    """-1 where any will do."""
    is_written: bool
    device_type: int = CPU

    def check(self, args: Expr, index: int) -> Call:
        """The call that fails unless an argument is such an array."""
        words = (StringImm(self.signature), StringImm(self.name), StringImm(str(self.dtype)))
        numbers = (IntImm(_INT64, number) for number in (*self._flags, *self.extents))
        return Call(INT32, "check_array", (args, build.const(index), *words, *numbers))

    @property
    def _flags(self) -> tuple[int, int]:
        return int(self.is_written), self.device_type

    @classmethod
    def of(cls, call: Call) -> Self:
        """What a call checks."""
        words = [word.value for word in call.args[2:5] if isinstance(word, StringImm)]
        numbers = [number.value for number in call.args[5:] if isinstance(number, IntImm)]
        if len(words) != 3 or len(numbers) < 2 or len(numbers) != len(call.args) - 5:
            raise InternalError(f"{call} does not say what it checks")
        is_written, device, *extents = numbers
        dtype = DataType(words[2])
        return cls(words[0], words[1], dtype, tuple(extents), bool(is_written), device)

    @property
    def function(self) -> str:
        """How an error begins."""
        return short(self.signature)

    @property
    def argument(self) -> str:
        """How it goes on."""
        return f": argument {self.name}"

    @property
    def device(self) -> str:
        """Where it must be, in words."""
        return _DEVICES.get(self.device_type, f"a device of type {self.device_type}")

    @property
    def type_code(self) -> int:
        """The type as tensor_dtype gives it."""
        return self.dtype.type_code | self.dtype.bits << 8 | self.dtype.lanes << 16

    @property
    def dimensions(self) -> str:
        """How many it must have, in words."""
        return f"{len(self.extents)} dimensions"

    def extent_text(self, dim: int) -> str:
        """What an extent must be, in words."""
        return f"{self.name}.shape[{dim}] must be {self.extents[dim]}"


def short(signature: str) -> str:
    """A signature that fits in an error."""
    text = signature.encode()
    if len(text) <= SIGNATURE_BYTES:
        return signature
    return text[: SIGNATURE_BYTES - 4].decode(errors="ignore") + "...)"
