"""Sterna compiles machine-learning models to fast, small programs for any hardware.

The names here are those of the classic API. Each is loaded when it is first used, so importing
the package is quick and running a model does not load the compiler.
"""

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

from sterna.version import __version__

if sys.platform == "win32":  # extension modules find the runtime there
    os.add_dll_directory(os.path.join(os.path.dirname(__file__), "native", "lib"))

if TYPE_CHECKING:
    from sterna import (
        auto_scheduler,
        autotvm,
        contrib,
        error,
        ir,
        meta_schedule,
        micro,
        relay,
        rpc,
        runtime,
        target,
        te,
        testing,
        tir,
        topi,
        tune,
    )
    from sterna.driver import build, lower
    from sterna.ir import instrument, transform
    from sterna.ir.memory_pools import (
        ConstantMemoryPools,
        ConstantPoolInfo,
        PoolInfo,
        PoolInfoProperties,
        WorkspaceMemoryPools,
        WorkspacePoolInfo,
    )
    from sterna.ir.module import IRModule
    from sterna.model import CompiledModel, compile, load
    from sterna.quantization import quantize
    from sterna.runtime import (
        DataType,
        Device,
        Module,
        NDArray,
        PackedFunc,
        cpu,
        cuda,
        device,
        ext_dev,
        get_global_func,
        hexagon,
        list_global_func_names,
        metal,
        opencl,
        register_func,
        remove_global_func,
        rocm,
        vpi,
        vulkan,
        webgpu,
    )
    from sterna.runtime import ndarray as nd
    from sterna.runtime import opencl as cl
    from sterna.support.errors import InternalError, TVMError, register_error
    from sterna.tir.convert import convert

# Where each name is found: a module, or a module and an attribute of it.
_WHERE: dict[str, tuple[str, str | None]] = {
    "_ffi": ("sterna.runtime", None),
    "arith": ("sterna.arith", None),
    "auto_scheduler": ("sterna.auto_scheduler", None),
    "autotvm": ("sterna.autotvm", None),
    "contrib": ("sterna.contrib", None),
    "driver": ("sterna.driver", None),
    "error": ("sterna.error", None),
    "instrument": ("sterna.ir.instrument", None),
    "ir": ("sterna.ir", None),
    "target": ("sterna.target", None),
    "meta_schedule": ("sterna.meta_schedule", None),
    "micro": ("sterna.micro", None),
    "exec": ("sterna.exec", None),
    "relay": ("sterna.relay", None),
    "rpc": ("sterna.rpc", None),
    "te": ("sterna.te", None),
    "tir": ("sterna.tir", None),
    "topi": ("sterna.topi", None),
    "transform": ("sterna.ir.transform", None),
    "tune": ("sterna.tune", None),
    "IRModule": ("sterna.ir.module", "IRModule"),
    "build": ("sterna.driver", "build"),
    "cl": ("sterna.runtime", "opencl"),
    "convert": ("sterna.tir.convert", "convert"),
    "lower": ("sterna.driver", "lower"),
    "CompiledModel": ("sterna.model", "CompiledModel"),
    "compile": ("sterna.model", "compile"),
    "load": ("sterna.model", "load"),
    "quantize": ("sterna.quantization", "quantize"),
    "nd": ("sterna.runtime.ndarray", None),
    "runtime": ("sterna.runtime", None),
    "testing": ("sterna.testing", None),
    **{
        name: ("sterna.runtime", name)
        for name in (
            "DataType", "Device", "Module", "NDArray", "PackedFunc",
            "cpu", "cuda", "device", "ext_dev", "hexagon", "metal", "opencl", "rocm", "vpi",
            "vulkan", "webgpu",
            "get_global_func", "list_global_func_names", "register_func", "remove_global_func",
        )
    },
    **{
        name: ("sterna.ir.memory_pools", name)
        for name in (
            "ConstantMemoryPools", "ConstantPoolInfo", "PoolInfo", "PoolInfoProperties",
            "WorkspaceMemoryPools", "WorkspacePoolInfo",
        )
    },
    **{
        name: ("sterna.support.errors", name)
        for name in ("InternalError", "TVMError", "register_error")
    },
}

__all__ = [
    "__version__",
    "CompiledModel", "ConstantMemoryPools", "ConstantPoolInfo", "DataType", "Device", "IRModule",
    "InternalError", "Module", "NDArray", "PackedFunc", "PoolInfo", "PoolInfoProperties",
    "TVMError", "WorkspaceMemoryPools", "WorkspacePoolInfo",
    "auto_scheduler", "autotvm", "build", "cl", "compile", "contrib", "convert", "cpu", "cuda",
    "device", "error", "ext_dev", "get_global_func", "hexagon", "instrument", "ir",
    "list_global_func_names", "load", "lower", "meta_schedule", "metal", "micro", "nd",
    "opencl", "quantize", "register_error", "register_func", "relay", "remove_global_func",
    "rocm", "rpc", "runtime", "target", "te", "testing", "tir", "topi", "transform",
    "tune", "vpi", "vulkan", "webgpu",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        tell = importlib.import_module("sterna.support.classic").missing
        raise tell(f"sterna.{name}", f"module 'sterna' has no attribute '{name}'")
    module_name, attribute = _WHERE[name]
    module = importlib.import_module(module_name)
    value = module if attribute is None else getattr(module, attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
