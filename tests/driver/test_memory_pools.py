"""Networks in pools of memory: what lies where, what the header says, and what does not fit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.relay.backend import Executor, Runtime
from sterna.runtime.executor import AotModule
from sterna.tir.usmp import utils
from tests.driver.c_network import C_INTERFACE, CNetwork
from tests.driver.test_aot import by_graph, keywords, results

KB = 1024
ALGORITHMS = [
    "auto", "greedy_by_size", "greedy_by_conflicts", "linear_scan", "hill_climb", "optimal"
]


def workspace(*sizes: int, target: str = "c", **more: Any) -> tvm.WorkspaceMemoryPools:
    """Pools a, b, ... of these sizes."""
    return tvm.WorkspaceMemoryPools([
        tvm.WorkspacePoolInfo(name, [tvm.target.Target(target)],
                              tvm.PoolInfoProperties(size_hint_bytes=size, **more))
        for name, size in zip("abcdef", sizes, strict=False)
    ])


def constants(*sizes: int, target: str = "c") -> tvm.ConstantMemoryPools:
    return tvm.ConstantMemoryPools([
        tvm.ConstantPoolInfo(f"flash{place}", [tvm.target.Target(target)],
                             pool_info_properties=tvm.PoolInfoProperties(size_hint_bytes=size))
        for place, size in enumerate(sizes)
    ])


def build(config: dict[str, Any] | None = None, options: dict[str, Any] | None = None,
          **more: Any) -> Any:
    mod, params, _ = keywords()
    with tvm.transform.PassContext(opt_level=3, config=config or {}):
        return relay.build(
            mod, target="c", params=params, runtime=Runtime("crt"),
            executor=Executor("aot", {**C_INTERFACE, **(options or {})}), **more,
        )


@pytest.fixture(scope="module")
def wanted() -> list[Any]:
    mod, params, x = keywords()
    return by_graph(mod, {"data": x}, params=params)


def check(built: Any, wanted: list[Any], folder: Path) -> None:
    _, _, x = keywords()
    np.testing.assert_allclose(CNetwork(built, folder)([x], wanted)[0], wanted[0], rtol=1e-5)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_several_pools(algorithm: str, wanted: list[Any], tmp_path: Path) -> None:
    """The large tensor does not fit into the first pool, the small ones do."""
    config = {"tir.usmp.enable": True, "tir.usmp.algorithm": algorithm}
    built = build(config, workspace_memory_pools=workspace(5 * KB, 40 * KB))
    check(built, wanted, tmp_path)
    report = built.memory_report()
    assert [use.name for use in report.pools] == ["a", "b"]
    assert 0 < report.pools[0].bytes <= 5 * KB and 31360 <= report.pools[1].bytes <= 40 * KB
    assert report.workspace_bytes == sum(use.bytes for use in report.pools)
    header = built.get_c_header()
    assert "struct tvmgen_default_workspace_pools {\n  void *a;\n  void *b;\n};" in header
    assert f"#define TVMGEN_DEFAULT_A_WORKSPACE_POOL_SIZE {report.pools[0].bytes}\n" in header
    assert "struct tvmgen_default_workspace_pools *workspace_pools);" in header
    assert "uint8_t tvmgen_default_workspace" not in built.get_lib().get_source()


@pytest.mark.parametrize("sizes", [(2 * KB,), (1 * KB, 1 * KB), (600, 800)])
def test_constants_in_pools(sizes: tuple[int, ...], wanted: list[Any], tmp_path: Path) -> None:
    built = build(constant_memory_pools=constants(*sizes))
    check(built, wanted, tmp_path)
    header, report = built.get_c_header(), built.memory_report()
    assert sum(use.bytes for use in report.pools) == report.constant_bytes == 1344
    assert "  const void *flash0;" in header and "_FLASH0_CONSTANT_POOL_DATA { \\" in header
    assert "_constant_p0" not in built.get_lib().get_source()


def test_everything_in_pools(wanted: list[Any], tmp_path: Path) -> None:
    built = build(
        {"tir.usmp.use_workspace_io": True}, {"workspace-byte-alignment": 128},
        workspace_memory_pools=workspace(4 * KB, 40 * KB), constant_memory_pools=constants(2 * KB),
    )
    check(built, wanted, tmp_path)
    header = built.get_c_header()
    assert "tvmgen_default_run(struct tvmgen_default_workspace_pools *workspace_pools);" in header
    assert "A_WORKSPACE_POOL_ALIGNMENT 128\n" in header


def test_inputs_and_outputs_in_the_workspace(wanted: list[Any], tmp_path: Path) -> None:
    built = build({"tir.usmp.enable": True, "tir.usmp.use_workspace_io": True})
    check(built, wanted, tmp_path)
    header = built.get_c_header()
    assert "struct tvmgen_default_inputs tvmgen_default_map_inputs(void);" in header
    assert "int32_t tvmgen_default_run(void);" in header


def test_outputs_that_are_inputs_or_constants_in_the_workspace(tmp_path: Path) -> None:
    x = relay.var("x", shape=(2, 3))
    held = relay.const(np.arange(4, dtype="int32"))
    twice = relay.add(x, x)
    body = relay.Tuple((x, twice, held, relay.reshape(x, (6,)), twice, held))
    with tvm.transform.PassContext(config={"tir.usmp.use_workspace_io": True}):
        built = relay.build(
            tvm.IRModule.from_expr(body), target="c", runtime=Runtime("crt"),
            executor=Executor("aot", C_INTERFACE), constant_memory_pools=constants(64),
        )
    given = np.arange(6, dtype="float32").reshape(2, 3)
    numbers = np.arange(4, dtype="int32")
    want = [given, given * 2, numbers, given.ravel(), given * 2, numbers]
    for got, wanted in zip(CNetwork(built, tmp_path)([given], want), want, strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_a_planner_of_ones_own(wanted: list[Any], tmp_path: Path) -> None:
    seen: list[int] = []

    @tvm.register_func("tir.usmp.algo.end_to_end", override=True)
    def end_to_end(buffers: Any, pressure: int) -> Any:
        seen.append(pressure)
        layout, offset = {}, 0
        for buffer in buffers:
            assert all(buffer in other.conflicts for other in buffer.conflicts)
            layout[buffer] = utils.PoolAllocation(buffer.pool_candidates[0], offset)
            offset += buffer.size_bytes
        return layout

    built = build({"tir.usmp.enable": True, "tir.usmp.custom_algorithm": "end_to_end"})
    check(built, wanted, tmp_path)
    report = built.memory_report()
    assert report.algorithm == "end_to_end" and report.workspace_bytes > seen[0]


def test_planners_that_are_wrong() -> None:
    config = {"tir.usmp.custom_algorithm": "wrong"}

    def register(offset: Any) -> None:
        @tvm.register_func("tir.usmp.algo.wrong", override=True)
        def wrong(buffers: Any, _: int) -> Any:
            return {b: utils.PoolAllocation(b.pool_candidates[0], offset) for b in buffers}

    with pytest.raises(ValueError, match="Please register it as tir"):
        build({"tir.usmp.custom_algorithm": "missing"})
    register(0)
    with pytest.raises(ValueError, match="into the same memory, but both are needed"):
        build(config)
    register(8)
    with pytest.raises(ValueError, match="at an offset that 16 divides"):
        build(config)
    tvm.register_func("tir.usmp.algo.wrong", lambda buffers, _: {}, override=True)
    with pytest.raises(ValueError, match="gives no place to the buffer 'tvmgen_default"):
        build(config)
    tvm.register_func("tir.usmp.algo.wrong", lambda buffers, _: 7, override=True)
    with pytest.raises(TypeError, match="must give a dict of PoolAllocations"):
        build(config)
    tvm.remove_global_func("tir.usmp.algo.wrong")


@pytest.mark.parametrize("sizes", [(20 * KB,), (20 * KB, 25 * KB)])
@pytest.mark.parametrize("algorithm", ["greedy_by_size", "optimal"])
def test_pools_that_are_too_small(sizes: tuple[int, ...], algorithm: str) -> None:
    config = {"tir.usmp.enable": True, "tir.usmp.algorithm": algorithm}
    words = r"\d+ bytes are missing in a .*buffer 'tvmgen_default_fused_nn_conv2d_nn_relu' of 31360"
    if len(sizes) > 1:
        words = r"buffer 'tvmgen_default_fused_nn_conv2d_nn_relu' of 31360 bytes: \d+ bytes are"
    with pytest.raises(ValueError, match=words):
        build(config, workspace_memory_pools=workspace(*sizes))


def test_the_shortfall_is_exact() -> None:
    needed = build().memory_report().workspace_bytes
    with pytest.raises(ValueError, match=f" 100 bytes are missing in a .{needed - 100} bytes"):
        build(workspace_memory_pools=workspace(needed - 100))
    assert build(workspace_memory_pools=workspace(needed)).memory_report().pools[0].bytes == needed
    words = "'w1', a constant .* of 'tvmgen_default_fused_nn_conv2d_nn_relu' of 576 bytes: 344 byte"
    with pytest.raises(ValueError, match=words):
        build(constant_memory_pools=constants(1000))


def test_fast_pools_are_preferred() -> None:
    def pools(**fields: list[int]) -> list[str]:
        infos = [
            tvm.WorkspacePoolInfo(
                name, ["c"], tvm.PoolInfoProperties(
                    size_hint_bytes=64 * KB, **{key: value[at] for key, value in fields.items()}
                ),
            )
            for at, name in enumerate(("slow", "fast"))
        ]
        report = build(workspace_memory_pools=tvm.WorkspaceMemoryPools(infos)).memory_report()
        return [use.name for use in report.pools if use.bytes]

    assert pools() == ["slow"]  # nothing says otherwise: the first
    assert pools(read_bandwidth_bytes_per_cycle=[4, 8]) == ["fast"]
    assert pools(read_latency_cycles=[10, 2]) == ["fast"]
    assert pools(clock_frequency_hz=[10**8, 2 * 10**8]) == ["fast"]
    assert pools(read_bandwidth_bytes_per_cycle=[-1, 8]) == ["slow"]


def test_pools_of_a_network_with_the_runtime() -> None:
    mod, params, x = keywords()
    want = by_graph(mod, {"data": x}, params=params)
    info = tvm.PoolInfoProperties(size_hint_bytes=8 * KB)
    pools = tvm.WorkspaceMemoryPools([
        tvm.WorkspacePoolInfo("near", ["llvm"], info), tvm.WorkspacePoolInfo("far", ["llvm"])
    ])
    lib = relay.build(mod, target="llvm", params=params, executor=Executor("aot"),
                      workspace_memory_pools=pools)
    np.testing.assert_array_equal(
        results(AotModule(lib["default"](tvm.cpu(0))), {"data": x})[0], want[0]
    )
    near, far = lib.memory_report().pools
    assert 0 < near.bytes <= near.limit == 8 * KB and far.bytes >= 31360 and far.limit is None


def test_constants_that_callers_give(wanted: list[Any], tmp_path: Path) -> None:
    built = build(options={"link-params": False})
    assert "_constant_p0" not in built.get_lib().get_source()
    given = [array.numpy() for array in built.get_params().values()]
    names = [operand.name for operand in built.interface.inputs]
    by_name = {"data": keywords()[2], **dict(zip(built.get_params(), given, strict=True))}
    got = CNetwork(built, tmp_path)([by_name[name] for name in names], wanted)
    np.testing.assert_allclose(got[0], wanted[0], rtol=1e-5)


def test_alignment_is_of_every_tensor(tmp_path: Path) -> None:
    built = build(options={"workspace-byte-alignment": 64, "constant-byte-alignment": 32})
    source = built.get_lib().get_source()
    assert "static STERNA_ALIGNED(64) uint8_t tvmgen_default_workspace[" in source
    assert "static const STERNA_ALIGNED(32) float tvmgen_default_constant_p0" in source
    mod, params, _ = keywords()
    target = "c -workspace-byte-alignment=256 -constants-byte-alignment=128"
    asked = relay.build(mod, target=target, params=params, runtime=Runtime("crt"),
                        executor=Executor("aot", C_INTERFACE))
    assert "STERNA_ALIGNED(256) uint8_t" in asked.get_lib().get_source()
    assert "STERNA_ALIGNED(128) float" in asked.get_lib().get_source()


@pytest.mark.parametrize(
    "more,words",
    [
        ({"executor": Executor("graph"), "runtime": Runtime("cpp")}, 'use Executor\\("aot"\\)'),
        ({"executor": Executor("aot")}, "of a C interface"),
        ({"workspace_memory_pools": ["a"]}, "expected WorkspaceMemoryPools"),
        ({"target": "c -mcpu=cortex-m4"}, "none of the memory pools is for the target c .*: a"),
    ],
)
def test_pools_that_mean_nothing(more: dict[str, Any], words: str) -> None:
    mod, params, _ = keywords()
    chosen = {
        "target": "c", "runtime": Runtime("crt"), "executor": Executor("aot", C_INTERFACE),
        "workspace_memory_pools": workspace(KB), **more,
    }
    with pytest.raises((ValueError, TypeError), match=words):
        relay.build(mod, params=params, **chosen)


def test_workspace_io_needs_a_header() -> None:
    mod, params, _ = keywords()
    config = {"tir.usmp.use_workspace_io": True}
    with tvm.transform.PassContext(config=config), pytest.raises(ValueError, match="interface_api"):
        relay.build(mod, target="llvm", params=params, executor=Executor("aot"))
