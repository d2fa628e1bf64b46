"""Running compiled code: values, functions, arrays, devices and modules.

Everything here stands on the C runtime and needs no compiler.
"""

import ctypes

import numpy as np

from sterna.runtime import _core, ndarray
from sterna.runtime._core import Object, PackedFunc
from sterna.runtime.device import (
    Device,
    cpu,
    cuda,
    device,
    ext_dev,
    hexagon,
    metal,
    opencl,
    rocm,
    vpi,
    vulkan,
    webgpu,
)
from sterna.runtime.module import (
    Module,
    ModulePropertyMask,
    enabled,
    load_extension,
    load_module,
    system_lib,
)
from sterna.runtime.ndarray import NDArray
from sterna.runtime.params import load_param_dict, save_param_dict
from sterna.runtime.registry import (
    get_global_func,
    list_global_func_names,
    register_func,
    remove_global_func,
)
from sterna.runtime.threads import num_threads, set_num_threads
from sterna.runtime.timing import BenchmarkResult
from sterna.support.classic import classic_names
from sterna.support.dtype import DataType
from sterna.support.errors import make_exception

_core.configure(
    ndarray=NDArray,
    module=Module,
    device=Device,
    dtype=DataType,
    numpy_generic=np.generic,
    void_pointer=ctypes.c_void_p,
    make_exception=make_exception,
)

__all__ = [
    "BenchmarkResult", "DataType", "Device", "Module", "ModulePropertyMask", "NDArray", "Object",
    "PackedFunc",
    "cpu", "cuda", "device", "enabled", "ext_dev", "get_global_func", "hexagon",
    "list_global_func_names", "load_extension", "load_module", "load_param_dict", "metal",
    "ndarray", "num_threads", "opencl", "register_func", "remove_global_func", "rocm",
    "save_param_dict", "set_num_threads", "system_lib", "vpi", "vulkan", "webgpu",
]

__getattr__ = classic_names(__name__)
