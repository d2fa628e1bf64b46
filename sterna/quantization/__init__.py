"""Quantisation of float models after training: calibration, ranges, integers.

`quantize` takes an ONNX model and samples and gives the model in QDQ form, which IntegerArithmetic
and other engines compute in integers; `classic` is relay.quantize, the same on graphs of Relay.
"""

from typing import TYPE_CHECKING, Any

from sterna.support.discovery import load_name

if TYPE_CHECKING:
    from sterna.quantization.quantize_model import QuantizedModel, quantize
    from sterna.quantization.report import QuantizationReport

_WHERE = {
    "QuantizationReport": "sterna.quantization.report:QuantizationReport",
    "QuantizedModel": "sterna.quantization.quantize_model:QuantizedModel",
    "quantize": "sterna.quantization.quantize_model:quantize",
}

__all__ = ["QuantizationReport", "QuantizedModel", "quantize"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'sterna.quantization' has no attribute '{name}'")
    return load_name(_WHERE[name])
