"""Running packages, here or on another machine, for tvmc."""

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sterna import micro, rpc
from sterna.contrib.debugger import debug_executor
from sterna.contrib.debugger.debug_executor import GraphModuleDebug
from sterna.contrib.tvmc.micro import typed_options
from sterna.contrib.tvmc.model import TVMCException, TVMCPackage, TVMCResult
from sterna.relay.arrays import Array, numpy_dtype
from sterna.runtime import Device, graph_executor, load_module
from sterna.runtime import device as device_of
from sterna.runtime.executor.aot_executor import AotModule
from sterna.runtime.graph_executor import GraphModule
from sterna.support.dtype import DataType

DEVICES = {"cpu": "cpu", "cuda": "cuda", "cl": "opencl", "opencl": "opencl"}
MICRO = "micro"
FILLS = ("random", "zeros", "ones")


def run_module(
    tvmc_package: TVMCPackage | None, device: str = "cpu", hostname: str | None = None,
    port: int | str = 9090, rpc_key: str | None = None,
    inputs: Mapping[str, Any] | None = None, fill_mode: str = "random", benchmark: bool = True,
    repeat: int = 10, number: int = 10, profile: bool = False, end_to_end: bool = False,
    *, project_dir: str | os.PathLike[str] | None = None, project_options: Sequence[str] = (),
) -> TVMCResult:
    """Run a package, on numbers of its own where none are given; what it gave and what it took.

    benchmark: take times, repeat of them, each of number runs; without it one is taken of one run.
    fill_mode: random, zeros or ones. hostname, port, rpc_key: a server, or with a key the tracker
    that lends it. profile: print what each kernel takes. project_dir: with the device "micro", the
    project that was built for it; project_options are NAME=VALUE.
    """
    if device not in (*DEVICES, MICRO):
        raise TVMCException(f"device is {', '.join((*DEVICES, MICRO))}, not {device!r}")
    if fill_mode not in FILLS:
        raise TVMCException(f"fill_mode is {', '.join(FILLS)}, not {fill_mode!r}")
    if not benchmark:
        repeat, number = 1, 1
    if not (device == MICRO) == (project_dir is not None) == (tvmc_package is None):
        raise TVMCException(f'a package runs on {", ".join(DEVICES)}; project_dir= on "{MICRO}"')
    if tvmc_package is None:
        assert project_dir is not None
        project = micro.GeneratedProject.from_directory(os.fspath(project_dir))
        try:
            options = typed_options(project_options, project.options)
            with micro.Session(project.transport(options)) as session:
                module: GraphModule = AotModule(session.create_aot_executor())
                values = make_inputs_dict(*module.get_input_info(), inputs, fill_mode)
                return _run(module, session.device, values, repeat, number, end_to_end)
        finally:
            project.close()
    if tvmc_package.type == "mlf":
        raise TVMCException(
            f"{tvmc_package.package_path} is in Model Library Format, for programs of C: "
            "`tvmc micro create` or tvm.micro.generate_project make one of it"
        )
    with tempfile.TemporaryDirectory(prefix="sterna-tvmc-") as folder:
        library = tvmc_package.library(Path(folder))
        if rpc_key is None and hostname is None:
            there = device_of(DEVICES[device], 0)
            code: Any = load_module(library)
        else:
            remote = _session(hostname, int(port), rpc_key)
            remote.upload(library)
            code, there = remote.load_module(library.name), remote.device(DEVICES[device], 0)
        module = _executor(tvmc_package, code, there, profile)
        values = make_inputs_dict(*module.get_input_info(), inputs, fill_mode)
        return _run(module, there, values, repeat, number, end_to_end)


def _session(hostname: str | None, port: int, key: str | None) -> Any:
    if hostname is None:
        raise TVMCException(f"rpc_key {key!r} is lent by a tracker; give its hostname")
    return rpc.connect(hostname, port) if key is None else rpc.connect_tracker(
        hostname, port).request(key)


def _executor(package: TVMCPackage, code: Any, device: Device, profile: bool) -> GraphModule:
    if package.graph is None and profile:
        raise TVMCException(
            f"{package.package_path} holds no graph whose kernels are timed one by one; a package "
            "of the graph executor with a name in .tar does"
        )
    if package.graph is None:
        return GraphModule(code["default"](device))
    maker = debug_executor.create if profile else graph_executor.create
    made = maker(package.graph, code, device)
    if package.params is not None:
        made.load_params(package.params)
    return made


def _run(
    module: GraphModule, device: Device, values: dict[str, Any], repeat: int, number: int,
    end_to_end: bool,
) -> TVMCResult:
    times = module.benchmark(
        device, repeat=repeat, number=number, end_to_end=end_to_end, **values
    )
    if isinstance(module, GraphModuleDebug):
        print(module.profile(**values))
    module.run(**values)
    outputs = {f"output_{place}": module.get_output(place).numpy()
               for place in range(module.get_num_outputs())}
    return TVMCResult(outputs, times)


def make_inputs_dict(
    shape_dict: Mapping[str, tuple[int, ...]], dtype_dict: Mapping[str, str],
    inputs: Mapping[str, Any] | None = None, fill_mode: str = "random",
) -> dict[str, Array]:
    """The inputs by name: those that are given, the others filled."""
    given = dict(inputs or {})
    for name in given:
        if name not in shape_dict:
            raise TVMCException(
                f"there is no input '{name}'; the model takes {', '.join(shape_dict) or 'nothing'}"
            )
    made = {}
    for name, shape in shape_dict.items():
        dtype = numpy_dtype(DataType(dtype_dict[name]))
        if name in given:
            made[name] = np.asarray(given[name])
            if made[name].shape != tuple(shape):
                raise TVMCException(
                    f"input '{name}' has the shape {list(shape)}, not {list(made[name].shape)}"
                )
        else:
            made[name] = _filled(tuple(shape), dtype, fill_mode)
    return made


def _filled(shape: tuple[int, ...], dtype: Any, mode: str) -> Array:
    rng = np.random.default_rng(0)
    if mode == "random" and np.issubdtype(dtype, np.integer):
        return rng.integers(0, min(128, np.iinfo(dtype).max), shape).astype(dtype)
    makers: dict[str, Callable[[Any], Any]] = {
        "random": rng.random, "zeros": np.zeros, "ones": np.ones,
    }
    made: Array = np.asarray(makers[mode](shape)).astype(dtype)
    return made
