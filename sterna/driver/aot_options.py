"""How a network is called that is one function, after the choices were checked."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sterna.ir.memory_pools import (
    ConstantMemoryPools,
    ConstantPoolInfo,
    PoolInfo,
    WorkspaceMemoryPools,
    in_order_of_preference,
)
from sterna.ir.transform import PassContext
from sterna.lowering.storage import ARENA
from sterna.relay.backend import Executor, Runtime
from sterna.target import Target
from sterna.target.code_generator import ProgramCodeGenerator

WORKSPACE_ALIGNMENT = 16
"""Bytes, where memory is scarce; no element is larger."""
WORD = 4
"""Bytes that kernels load together: addresses of arrays divide by them, whoever asks for less."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a network is called, and what memory it may use."""

    runtime: str
    interface: str
    links_params: bool
    """Whether constants are part of the code; else its callers give them."""
    workspace_alignment: int
    constant_alignment: int
    algorithm: str
    custom_algorithm: str
    holds_operands: bool
    """Whether inputs and outputs lie in the workspace."""
    pools: Sequence[PoolInfo]
    """What intermediate results lie in, what is preferred first."""
    constant_pools: Sequence[ConstantPoolInfo]

    @property
    def has_pools(self) -> bool:
        """Whether the pools are the caller's."""
        return self.pools[0] is not ARENA

    @classmethod
    def of(
        cls, executor: Executor, runtime: Runtime, target: Target,
        workspace_pools: WorkspaceMemoryPools | None = None,
        constant_pools: ConstantMemoryPools | None = None,
    ) -> "Options":
        """What an executor and a runtime ask for; combinations that mean nothing are refused."""
        # A program that a host drives, as the classic texts build it: it calls plain functions.
        driven = runtime.name == "crt" and runtime.options.get("system-lib", False)
        unpacked = executor.options.get(
            "unpacked-api", driven and "interface-api" not in executor.options
        )
        plain = runtime.name == "crt" and unpacked
        interface = executor.options.get("interface-api", "c" if plain else "packed")
        _check_interface(unpacked, runtime, target, interface)
        setting = PassContext.current().get_config
        default = WORKSPACE_ALIGNMENT if runtime.name == "crt" else 64
        custom = setting("tir.usmp.custom_algorithm")
        algorithm = setting("tir.usmp.algorithm") if setting("tir.usmp.enable") else "auto"
        made = cls(
            runtime.name, interface, executor.options["link-params"],
            _alignment(executor, "workspace-byte-alignment",
                       target.attrs.get("workspace-byte-alignment") or default),
            _alignment(executor, "constant-byte-alignment",
                       target.attrs.get("constants-byte-alignment") or default),
            algorithm, custom, setting("tir.usmp.use_workspace_io"),
            usable_pools(workspace_pools, WorkspaceMemoryPools, target) or (ARENA,),
            usable_pools(constant_pools, ConstantMemoryPools, target),
        )
        _check_memory(made)
        return made


def _check_interface(unpacked: bool, runtime: Runtime, target: Target, interface: str) -> None:
    if interface not in ("packed", "c"):
        raise ValueError(f'interface-api is "packed" or "c", not "{interface}"')
    if runtime.name == "cpp" and (unpacked or interface == "c"):
        raise ValueError(
            f'Need unpacked-api == false (got: {int(unpacked)}) and interface-api == "packed" '
            f'(got: {interface}) when targeting c++ runtime; Runtime("crt") has the others'
        )
    if interface == "c" and not unpacked:
        raise ValueError(
            f'Either need interface_api == "packed" (got: {interface}) or unpacked-api == true '
            f"(got: {int(unpacked)}) when targeting c runtime: a C interface passes plain addresses"
        )
    generator = target.kind.code_generator()
    if runtime.name == "crt" and not isinstance(generator, ProgramCodeGenerator):
        raise ValueError(
            f'Runtime("crt") is for programs in C: build for the target "c", not {target}'
        )


def _check_memory(options: Options) -> None:
    if options.holds_operands and options.interface != "c":
        raise ValueError(
            "tir.usmp.use_workspace_io option is only compatible with interface_api c: its header "
            'says where inputs and outputs lie; use Executor("aot", {"interface-api": "c", '
            '"unpacked-api": True})'
        )
    given = options.has_pools or bool(options.constant_pools)
    if given and options.runtime == "crt" and options.interface != "c":
        raise ValueError(
            'memory pools are handed to the function of a C interface: use Executor("aot", '
            '{"interface-api": "c", "unpacked-api": True})'
        )
    if options.runtime == "cpp" and options.constant_pools:
        raise ValueError(
            'constant_memory_pools are for Runtime("crt"): with Runtime("cpp") constants lie where '
            "the library is loaded"
        )
    if options.constant_pools and not options.links_params:
        raise ValueError(
            "constant_memory_pools hold constants that are linked: with link-params false the "
            "caller gives each by itself"
        )


def _alignment(executor: Executor, key: str, default: Any) -> int:
    value = int(executor.options.get(key, default))
    if value < 1 or value & (value - 1):
        raise ValueError(f'Attribute "{key}" must be a power of two, not {value}')
    return max(WORD, value)


def aot_options(
    executor: Executor, runtime: Runtime, target: Target, workspace_pools: Any = None,
    constant_pools: Any = None,
) -> Options | None:
    """How a network is called that is one function; None if it is a graph."""
    if executor.name == "aot":
        return Options.of(executor, runtime, target, workspace_pools, constant_pools)
    if runtime.name != "cpp":
        raise ValueError(
            f'Runtime("{runtime.name}") runs no graphs: it needs Executor("aot")'
        )
    if workspace_pools is not None or constant_pools is not None:
        raise ValueError(
            'memory pools are for networks that are one function: use Executor("aot"); a graph has '
            "one arena"
        )
    return None


def usable_pools(
    pools: Any, kind: type[WorkspaceMemoryPools | ConstantMemoryPools], target: Target
) -> list[Any]:
    """The pools that a target can use, what is preferred first."""
    if pools is None:
        return []
    if not isinstance(pools, kind):
        raise TypeError(f"expected {kind.__name__}([...]), got {pools!r}")
    own = (target.kind.name, target.attrs)

    def is_meant(pool: PoolInfo) -> bool:
        given = [Target(one) for one in pool.targets]
        return not given or any((one.kind.name, one.attrs) == own for one in given)

    every: list[PoolInfo] = [*pools.pools]
    usable = [pool for pool in every if is_meant(pool)]
    if every and not usable:
        listed = ", ".join(
            f"{pool.pool_name} ({'; '.join(str(one) for one in pool.targets)})" for pool in every
        )
        raise ValueError(
            f"none of the memory pools is for the target {target}: {listed}. A pool names the very "
            "target that relay.build is given"
        )
    return in_order_of_preference(usable)

