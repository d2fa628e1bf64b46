"""Products by Tensor Cores and by lanes: what is made for sm_90a, and which tiles are taken."""

import re
from collections.abc import Callable
from functools import cache

import pytest

import sterna as tvm
from sterna import relay
from sterna.schedule.gpu.operand import Matrix
from sterna.schedule.gpu.product_tiles import ring_of
from sterna.schedule.gpu.ring import Product, Ring
from sterna.support.dtype import DataType
from tests.gpu.ptxas import assemble, requires_ptxas

HOPPER = "cuda -arch=sm_90a"
SHARED = 227 * 1024


def build(body: relay.Expr, target: str = HOPPER) -> tuple[str, str]:
    """The program of a graph's product, and what its launch needs beside parameters."""
    func = relay.Function(tuple(relay.analysis.free_vars(body)), body)
    lib = relay.build(tvm.IRModule.from_expr(func), target=target)
    (module,) = lib.get_lib().imported_modules
    programs = [p for p in module._implementation.programs if "nn_" in p.kernels[0][0]]
    (program,) = programs
    return program.source, program.kernels[0][2]


def dense(rows: int, columns: int, depth: int, kind: str = "bfloat16") -> relay.Expr:
    data = relay.var("x", shape=(rows, depth), dtype=kind)
    weight = relay.var("w", shape=(columns, depth), dtype=kind)
    out = {"int8": "int32"}.get(kind, "")
    made: relay.Expr = relay.nn.dense(data, weight, out_dtype=out)
    return made


def finished(body: relay.Expr, shape: tuple[int, ...], kind: str = "bfloat16") -> relay.Expr:
    """With a bias, a residual and an activation."""
    bias = relay.var("b", shape=(shape[-1],), dtype=kind)
    beside = relay.var("r", shape=shape, dtype=kind)
    made: relay.Expr = relay.nn.relu(relay.add(relay.nn.bias_add(body, bias, axis=-1), beside))
    return made


def conv(kind: str, layout: str, size: int = 14, channels: int = 64, stride: int = 1) -> relay.Expr:
    shape = {"HWIO": (3, 3, channels, 128), "OHWI": (128, 3, 3, channels)}[layout]
    made: relay.Expr = relay.nn.conv2d(
        relay.var("x", shape=(1, size, size, channels), dtype=kind),
        relay.var("w", shape=shape, dtype=kind),
        channels=128, kernel_size=(3, 3), padding=(1, 1), strides=(stride, stride),
        data_layout="NHWC", kernel_layout=layout,
    )
    return made


def groups(
    kind: str, count: int, channels: int, made: int, size: int = 14, window: int = 3
) -> relay.Expr:
    """A convolution of groups that have so many channels each, and make so many."""
    found: relay.Expr = relay.nn.conv2d(
        relay.var("x", shape=(1, size, size, count * channels), dtype=kind),
        relay.var("w", shape=(count * made, window, window, channels), dtype=kind),
        channels=count * made, kernel_size=(window, window), padding=window // 2, groups=count,
        data_layout="NHWC", kernel_layout="OHWI",
    )
    return found


KERNELS: dict[str, Callable[[], relay.Expr]] = {
    "small": lambda: finished(dense(100, 136, 512), (100, 136)),
    "split": lambda: finished(dense(49, 512, 4608), (49, 512)),
    "turned": lambda: finished(dense(16, 1000, 512), (16, 1000)),
    "large": lambda: finished(dense(4096, 4096, 512), (4096, 4096)),
    "large of float32": lambda: relay.cast(dense(4096, 4096, 512), "float32"),
    "float16": lambda: dense(300, 200, 264, "float16"),
    "bytes": lambda: dense(300, 200, 272, "int8"),
    "large of bytes": lambda: dense(4096, 4096, 512, "int8"),
    "windows": lambda: finished(conv("bfloat16", "HWIO"), (1, 14, 14, 128)),
    "weights along channels": lambda: conv("bfloat16", "OHWI", stride=2),
    "lanes": lambda: finished(dense(256, 512, 128, "float32"), (256, 512), "float32"),
    "lanes of one block": lambda: relay.nn.relu(dense(25088, 192, 32, "float32")),
    "windows of lanes": lambda: conv("float32", "HWIO"),
    "groups": lambda: finished(groups("bfloat16", 4, 128, 64), (1, 14, 14, 256)),
    "groups of lanes": lambda: groups("float32", 4, 32, 32),
}


@cache
def built(name: str) -> tuple[str, str]:
    """The program of one of these."""
    return build(KERNELS[name]())


@requires_ptxas
@pytest.mark.parametrize("name", KERNELS)
def test_kernels_assemble_without_spills(name: str) -> None:
    """Sums stay in registers, products follow each other, and nothing waits for all memory."""
    ptx, extras = built(name)
    made = assemble(ptx, "sm_90a")
    assert made.spilled_bytes == 0
    by_lanes = "lanes" in name
    assert ("wgmma.mma_async" in ptx) is not by_lanes
    assert ("fma.rn.f32" in ptx) or not by_lanes
    assert "cp.async.bulk.tensor" in ptx and extras.startswith("pdl\n")
    assert not re.search(r"mbarrier\.\w+\.(release|acquire)", ptx)  # they wait for all memory


@pytest.mark.parametrize("name, wanted", [
    ("split", ".reqnctapercluster 8"), ("split", "st.async"), ("turned", "stmatrix"),
    ("turned", ".trans.shared"), ("large", "cp.async.bulk.tensor.3d.global.shared::cta"),
    ("large", "setmaxnreg.inc"), ("windows", "im2col"), ("weights along channels", "im2col"),
    ("bytes", "k32.s32.s8.s8"),
    ("groups", "im2col"), ("windows of lanes", "im2col"),
    ("large of float32", "cp.async.bulk.tensor.3d.global"),
])
def test_kernels_use_what_their_shapes_want(name: str, wanted: str) -> None:
    assert wanted in built(name)[0]


@requires_ptxas
@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_100a"])
@pytest.mark.parametrize("name", ["small", "weights along channels"])
def test_warps_of_other_gpus_multiply_by_themselves(arch: str, name: str) -> None:
    ptx, _ = build(KERNELS[name](), f"cuda -arch={arch}")
    assert "wgmma" not in ptx and "cp.async.bulk" not in ptx
    assert "mma.sync.aligned.m16n8k16" in ptx and "ldmatrix" in ptx and "cp.async.cg" in ptx
    assert assemble(ptx, arch).spilled_bytes == 0


@requires_ptxas
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_warps_attend_for_few_queries(arch: str) -> None:
    """Scores and weights stay in registers; keys that heads share are read by one block."""
    parts = [
        relay.var(name, shape=(1, count, heads, 128), dtype="bfloat16")
        for name, count, heads in (("q", 1, 16), ("k", 4096, 4), ("v", 4096, 4))
    ]
    shared = [relay.repeat(part, 4, axis=2) for part in parts[1:]]
    ptx, _ = build(relay.nn.attention(parts[0], *shared, scale=0.1), f"cuda -arch={arch}")
    assert "mma.sync.aligned.m16n8k16" in ptx and "wgmma" not in ptx
    assert assemble(ptx, arch).spilled_bytes == 0


@requires_ptxas
@pytest.mark.parametrize("shape", [(100, 136, 520), (128, 768, 768), (4096, 4096, 512)])
def test_float32_goes_to_tensor_cores_where_the_target_allows_it(
    shape: tuple[int, int, int]
) -> None:
    ptx, _ = build(dense(*shape, "float32"), f"{HOPPER} -tf32=1")
    assert "k8.f32.tf32.tf32" in ptx and "fma.rn.f32" not in ptx
    made = assemble(ptx, "sm_90a")
    assert made.spilled_bytes == 0 and "serialized" not in made.words


@requires_ptxas
def test_warps_of_other_gpus_multiply_tf32() -> None:
    ptx, _ = build(dense(100, 136, 520, "float32"), "cuda -arch=sm_80 -tf32=1")
    assert "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32" in ptx and "cp.async.cg" in ptx
    assert assemble(ptx, "sm_80").spilled_bytes == 0


@requires_ptxas
@pytest.mark.parametrize("shape", [(512, 1024, 1024), (4096, 4096, 512)])
def test_three_products_of_tf32_stand_for_one(shape: tuple[int, int, int]) -> None:
    """One kernel writes the rests of the weights; the other multiplies out of registers."""
    ptx, _ = build(dense(*shape, "float32"), f"{HOPPER} -tf32=3")
    assert ptx.count(".entry") == 2 and "k8.f32.tf32.tf32" in ptx
    made = assemble(ptx, "sm_90a")
    assert made.spilled_bytes == 0 and "serialized" not in made.words


def test_one_or_three_products_of_tf32_are_allowed() -> None:
    with pytest.raises(ValueError, match="-tf32=2: how many products of tf32"):
        tvm.target.Target(f"{HOPPER} -tf32=2")


@pytest.mark.parametrize("shape", [(49, 500, 4607), (64, 64, 12)])
def test_rows_that_are_no_whole_chunks_are_filled_up(shape: tuple[int, int, int]) -> None:
    """Copies take rows of multiples of 16 bytes: another kernel writes such."""
    ptx, _ = build(dense(*shape))
    assert "wgmma" in ptx and ptx.count(".entry") == 3


def product(rows: int, columns: int, depth: int, kind: str = "bfloat16") -> Product:
    dtype = DataType(kind)
    return Product(
        Matrix(dtype, rows, depth), Matrix(dtype, columns, depth), rows, columns, 1, depth
    )


@pytest.mark.parametrize("shape, split", [
    ((49, 512, 4608), 8), ((196, 256, 2304), 4), ((784, 128, 1152), 2), ((3136, 64, 576), 1),
])
def test_few_tiles_split_their_sums(shape: tuple[int, int, int], split: int) -> None:
    """Until most processors have a part."""
    ring = ring_of(product(*shape), SHARED, DataType("bfloat16"))
    assert (ring.rows, ring.columns, ring.split) == (64, 64, split)


@pytest.mark.parametrize("size, tile, blocks", [
    ((4096, 4096, 4096), (128, 256), 128), ((4608, 4096, 4096), (128, 128), 128),
])
def test_large_products_keep_their_blocks(
    size: tuple[int, int, int], tile: tuple[int, int], blocks: int
) -> None:
    """All take the same number of turns."""
    ring = ring_of(product(*size), SHARED, DataType("bfloat16"))
    assert ((ring.rows, ring.columns), ring.resident) == (tile, blocks)


def test_few_columns_and_long_sums() -> None:
    """Blocks that stay have columns enough, and long sums no stages that are filled before."""
    narrow = ring_of(product(100352, 64, 576), SHARED, DataType("bfloat16"))
    assert (narrow.rows, narrow.columns, narrow.resident, narrow.stages) == (128, 64, 131, 6)
    assert ring_of(product(1024, 1024, 8192), SHARED, DataType("bfloat16")).stages == 6


@pytest.mark.parametrize("size, tile, parts", [
    ((512, 1024, 16384), (128, 128), 4), ((512, 512, 16384), (64, 128), 4),
    ((384, 1024, 8192), (64, 128), 2), ((1024, 1024, 8192), (64, 128), 1),
    ((200, 1536, 6144), (64, 128), 2), ((256, 4096, 4096), (64, 128), 1),
    ((128, 768, 3072), (64, 64), 1),
])
def test_long_sums_of_few_tiles_are_added_up_by_anexternal_kernel(
    size: tuple[int, int, int], tile: tuple[int, int], parts: int
) -> None:
    """Where so many blocks fill the processors."""
    ring = ring_of(product(*size), SHARED, DataType("bfloat16"))
    assert ((ring.rows, ring.columns), ring.apart) == (tile, parts)


@requires_ptxas
def test_parts_are_made_by_one_kernel_and_added_by_another() -> None:
    ptx, extras = build(dense(512, 1024, 16384))
    assert ptx.count(".entry") == 2 and "wgmma" in ptx and extras.startswith("pdl\n")
    made = assemble(ptx, "sm_90a")
    assert made.spilled_bytes == 0 and "serialized" not in made.words


@pytest.mark.parametrize("size, tile, pitch, together", [
    ((25088, 96, 576), (128, 96), 128, 1), ((25088, 192, 384), (128, 96), 128, 1),
    ((100352, 144, 24), (128, 144), 64, 1), ((401408, 96, 32), (128, 96), 64, 2),
    ((401408, 96, 16), (128, 96), 32, 2),
])
def test_tiles_have_the_columns_that_there_are(
    size: tuple[int, int, int], tile: tuple[int, int], pitch: int, together: int
) -> None:
    """Short sums have short rows in shared memory, and two blocks stay on each processor."""
    ring = ring_of(product(*size), SHARED, DataType("bfloat16"))
    assert ((ring.rows, ring.columns), ring.pitch, ring.together) == (tile, pitch, together)
    assert ring.resident > 0


@pytest.mark.parametrize("size, kept", [
    ((401408, 96, 32), 1), ((25088, 96, 576), 9), ((100352, 64, 256), 4), ((25088, 192, 384), 0),
    ((4096, 4096, 4096), 0), ((25088, 256, 1024), 0),
])
def test_columns_that_one_tile_has_stay_where_there_is_room(
    size: tuple[int, int, int], kept: int
) -> None:
    """Beside stages enough."""
    assert ring_of(product(*size), SHARED, DataType("bfloat16")).kept == kept


@pytest.mark.parametrize("size, rows, blocks", [
    ((197, 2304, 768), 40, 1), ((197, 3072, 768), 40, 2), ((256, 3072, 768), 64, 2),
])
def test_lanes_fill_tiles_and_processors(
    size: tuple[int, int, int], rows: int, blocks: int
) -> None:
    """Few rows are wasted, and no processor has room for more blocks than are to share it."""
    ring = ring_of(product(*size, "float32"), SHARED, DataType("float32"))
    assert ring.rows == rows and SHARED // ring.shared_bytes <= blocks


def test_single_rows_are_turned() -> None:
    ring = ring_of(product(1, 4096, 4096), SHARED, DataType("bfloat16"))
    assert ring.turned and ring.columns == 16


@pytest.mark.parametrize("ring", [
    Ring(128, 256, 4), Ring(128, 256, 4, resident=132), Ring(64, 64, 12, 8), Ring(128, 128, 6),
])
def test_rings_fit_into_shared_memory(ring: Ring) -> None:
    assert ring.shared_bytes <= SHARED


def rounded(rows: int, columns: int, depth: int, kind: str = "bfloat16") -> relay.Expr:
    """A product in 16 bits of data that is float32."""
    data = relay.cast(relay.var("x", shape=(rows, depth), dtype="float32"), kind)
    made: relay.Expr = relay.nn.dense(data, relay.var("w", shape=(columns, depth), dtype=kind))
    return made


ROUNDED = {
    "small": (100, 136, 512), "split": (49, 512, 4608), "turned": (16, 1000, 512),
    "parts that differ": (784, 128, 1216), "long": (784, 4096, 256),
}


@requires_ptxas
@pytest.mark.parametrize("name, kind", [
    *[(name, "bfloat16") for name in ROUNDED], ("split", "float16"),
])
def test_data_is_rounded_where_it_is_multiplied(name: str, kind: str) -> None:
    """There is one kernel, whose rows stay in registers, and products are not taken apart."""
    ptx, extras = build(rounded(*ROUNDED[name], kind))
    short = {"bfloat16": "bf16", "float16": "f16"}[kind]
    assert ptx.count(".entry") == 1 and f"cvt.rn.{short}x2.f32" in ptx
    assert f"{short}.{short}" in ptx and "tiled 7 3 2" in extras
    made = assemble(ptx, "sm_90a")
    assert made.spilled_bytes == 0 and "serialized" not in made.words


@requires_ptxas
def test_large_data_is_rounded_ahead_of_its_products() -> None:
    """One kernel rounds the first rows; the one that multiplies has warps for the others."""
    ptx, _ = build(rounded(4096, 4096, 512))
    assert ptx.count(".entry") == 2 and "atom.global.add.u32" in ptx
    assert "ld.acquire.gpu.global.u32" in ptx
    made = assemble(ptx, "sm_90a")
    assert made.spilled_bytes == 0 and "serialized" not in made.words


def test_gpus_without_such_products_round_by_a_kernel_before() -> None:
    ptx, _ = build(rounded(100, 136, 512), "cuda -arch=sm_80")
    assert ptx.count(".entry") == 2 and "mma.sync" in ptx
