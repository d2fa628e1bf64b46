"""Targets from text, dicts, JSON and tags, and back."""

import copy
import json
import pickle
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sterna.target as target_module
from sterna.isa import instruction_sets
from sterna.target import Target
from sterna.target.code_generator import KernelCodeGenerator, ProgramCodeGenerator
from sterna.target.kind import Option, all_kinds
from sterna.target.names import names_of

TEXTS = [
    "llvm",
    "llvm -mcpu=native",
    "native",
    "llvm -mcpu=skylake-avx512",
    "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72",
    "llvm -mtriple=riscv64-unknown-linux-gnu -mcpu=generic-rv64 -mattr=+v",
    "llvm -mtriple=wasm32",
    "llvm -mtriple=aarch64-linux-android",
    "llvm -mtriple=arm64-apple-macos",
    "llvm -device=arm_cpu -mtriple=aarch64-linux-gnu -mattr=+neon,+fp-armv8,+crc",
    "cuda -arch=sm_53",
    "cuda -arch=sm_72",
    "cuda -arch=sm_80",
    "opencl",
    "metal",
    "vulkan -max_threads_per_block=256",
    "webgpu",
    "rocm",
    "nvptx -mcpu=sm_70",
    "hexagon",
    "hexagon -mcpu=v68",
    "c",
    "c -mcpu=cortex-m4",
    "c -keys=arm_cpu -mcpu=cortex-m4",
    "c -keys=arm_cpu -mcpu=cortex-m4 -march=armv7e-m -mfloat-abi=hard -mfpu=fpv4-sp-d16 "
    "-runtime=c -system-lib",
    "c -mabi=ilp32 -mtune=sifive-e31 -workspace-byte-alignment=8 -constants-byte-alignment=16",
    "cuda -arch=sm_80 -libs=cudnn,cublas -model=a100",
    "cuda -arch=sm_80 -host='llvm -mtriple=aarch64-linux-gnu -mattr=+neon,+crc'",
    "llvm -model='a b' -libs=cblas,mkl -num-cores=4",
    "nvidia/nvidia-a100",
    "nvidia/jetson-nano",
    "raspberry-pi/4b-aarch64",
    "stackvm",
    "ext_dev",
]


@pytest.mark.parametrize("text", TEXTS)
def test_text_round_trips(text: str) -> None:
    made = Target(text)
    for again in (
        Target(str(made)), Target(made.export()), Target(json.dumps(made.export())), Target(made),
        pickle.loads(pickle.dumps(made)), copy.deepcopy(made),
    ):
        assert again == made
        assert hash(again) == hash(made)
        assert str(again) == str(made)


@pytest.mark.parametrize("kind", Target.list_kinds())
@pytest.mark.filterwarnings("ignore:Unable to detect CUDA")
def test_every_kind_is_a_target(kind: str) -> None:
    made = Target(kind)
    assert made.kind.name == kind == str(made.kind)
    assert Target(str(made)) == made


def test_kinds() -> None:
    wanted = {
        "llvm", "c", "cuda", "nvptx", "rocm", "opencl", "metal", "vulkan", "webgpu", "sdaccel",
        "aocl", "aocl_sw_emu", "hexagon", "stackvm", "ext_dev", "hybrid", "composite", "test",
        "ccompiler",
    }
    assert wanted <= set(Target.list_kinds())


@pytest.mark.parametrize("tag", target_module.list_tags())
def test_every_tag_is_a_target(tag: str) -> None:
    made = Target(tag)
    assert made.tag == tag
    assert Target({"tag": tag}) == made == Target(str(made))


def test_parts_of_a_target() -> None:
    made = Target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72 -mattr=+crc,-lse -libs=cblas")
    assert made.kind.name == "llvm"
    assert made.attrs["mtriple"] == "aarch64-linux-gnu"
    assert made.attrs.get("model") is None
    assert (made.mcpu, made.mattr, made.libs) == ("cortex-a72", ["+crc", "-lse"], ["cblas"])
    assert (made.model, made.device_name, made.tag, made.host) == ("unknown", "", "", None)
    assert made.keys == ["arm_cpu", "cpu"]
    assert made.get_target_device_type() == 1
    with pytest.raises(AttributeError, match="max_num_threads"):
        _ = made.max_num_threads
    with pytest.raises(TypeError):
        made.attrs["mcpu"] = "x"  # type: ignore[index]


def test_limits() -> None:
    gpu = Target("cuda -arch=sm_80")
    assert (gpu.max_num_threads, gpu.thread_warp_size, gpu.arch) == (1024, 32, "sm_80")
    assert Target("vulkan -max_threads_per_block=128").max_threads_per_block == 128
    assert Target("rocm").thread_warp_size == 64
    assert Target("hexagon -vtcm-capacity=8").vtcm_capacity == 8
    assert Target("cuda -arch=sm_80 -target_device_type=3").get_target_device_type() == 3


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("llvm", ["cpu"]),
        ("llvm -mcpu=cortex-a72", ["arm_cpu", "cpu"]),
        ("llvm -mcpu=generic", ["cpu"]),
        ("llvm -device=arm_cpu", ["arm_cpu", "cpu"]),
        ("c -mcpu=cortex-m4", ["arm_cpu", "cpu"]),
        ("c -keys=arm_cpu -mcpu=cortex-m4", ["arm_cpu", "cpu"]),
        ("llvm -mtriple=riscv64-unknown-elf", ["riscv_cpu", "cpu"]),
        ("llvm -mtriple=x86_64-linux-gnu", ["cpu"]),
        ("opencl -device=mali", ["mali", "opencl", "gpu"]),
        ("opencl -keys=adreno,gpu", ["adreno", "gpu"]),
        ("hexagon", ["hexagon", "cpu"]),
        ("stackvm", []),
    ],
)
def test_keys(text: str, keys: list[str]) -> None:
    assert Target(text).keys == keys


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("llvm -mcpu=skylake", "llvm -mcpu skylake"),
        ("llvm -mcpu=skylake", "llvm --mcpu='skylake'"),
        ("native", "llvm -mcpu=native"),
        ("c -system-lib", "c -system-lib=1"),
        ("c -system-lib -runtime=c", "c -runtime c -system-lib true"),
        ("c -mfloat_abi=hard", "c -mfloat-abi=hard"),
        ("llvm -mattr=avx2,fma", "llvm -mattr=+avx2,+fma"),
        ("llvm -mattr -sve", "llvm -mattr=-sve"),
        ("opencl", "opencl -max_num_threads=256"),
        ('{"kind": "llvm", "mcpu": "skylake"}', "llvm -mcpu=skylake"),
    ],
)
def test_spellings_of_one_target(one: str, other: str) -> None:
    assert Target(one) == Target(other)


def test_dicts() -> None:
    made = Target({"kind": "llvm", "mattr": ["+avx2"], "libs": "mkl,dnnl", "mcpu": None})
    assert made == Target("llvm -mattr=+avx2 -libs=mkl,dnnl")
    assert made.export() == {
        "kind": "llvm", "tag": "", "keys": ["cpu"], "libs": ["mkl", "dnnl"], "mattr": ["+avx2"],
    }


def test_inequality() -> None:
    assert Target("llvm") != Target("c")
    assert Target("c -system-lib=0") != Target("c")
    assert Target("llvm") != "llvm"
    assert len({Target("llvm"), Target("llvm -keys=cpu"), Target("c")}) == 2


def test_hosts() -> None:
    gpu = Target("cuda -arch=sm_80", host="llvm -mcpu=skylake")
    assert gpu.host == Target("llvm -mcpu=skylake")
    assert gpu.with_host("c").host == Target("c")
    assert gpu != Target("cuda -arch=sm_80")
    assert Target(gpu, host=Target("c")) == gpu.with_host("c")
    assert Target.canon_target_and_host("opencl", "c") == (Target("opencl", "c"), Target("c"))
    assert Target.canon_target(None) is None
    jetson = Target("nvidia/jetson-nano").host
    assert jetson is not None and jetson.mcpu == "cortex-a57"


def test_composite_holds_targets() -> None:
    made = Target({"kind": "composite", "devices": ["llvm -mattr=+avx2,+fma", Target("opencl")]})
    assert made.devices == (str(Target("llvm -mattr=+avx2,+fma")), str(Target("opencl")))
    assert Target(str(made)) == made
    with pytest.raises(ValueError, match="list of targets"):
        Target("composite -devices=llvm")


def test_tag_with_options() -> None:
    made = Target("nvidia/nvidia-a100 -libs=cudnn -thread_warp_size=64")
    assert (made.arch, made.libs, made.thread_warp_size) == ("sm_80", ["cudnn"], 64)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("nonsense", ["Cannot recognize 'nonsense'. Candidates are:", "llvm", "cuda"]),
        ("lvm", ["Cannot recognize 'lvm'. Candidates are: llvm"]),
        ("llvm -no_such_option=1", ["Cannot recognize 'no_such_option'.", "mcpu", "mattr"]),
        ("llvm -mcp=x", ["Cannot recognize 'mcp'. Candidates are: mcpu", "kind 'llvm'"]),
        ("llvm -mcpu=not-a-cpu", ["Cannot recognize 'not-a-cpu'.", "-mcpu"]),
        ("llvm -mcpu=skylake-avx51", ["Candidates are: skylake-avx512"]),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=skylake", ["'skylake'", "processor of aarch64"]),
        ("llvm -mtriple=riscv64-unknown-elf -mcpu=sifive-e31", ["'sifive-e31'", "riscv64"]),
        ("llvm -mtriple=x86_64-linux-gnu -mattr=+avx3", ["'avx3'", "avx2", "-mattr of x86"]),
        ("llvm -mattr=+no_feature_like_it", ["'no_feature_like_it'", "-mattr"]),
        ("llvm -mtriple=x68_64-linux", ["Cannot recognize 'x68_64'", "x86_64"]),
        ("c -mcpu=cortex-m44", ["'cortex-m44'", "cortex-m4"]),
        ("c -mfloat-abi=firm", ["'firm'", "hard, soft, softfp"]),
        ("cuda -arch=sm_81", ["'sm_81'", "sm_80"]),
        ("hexagon -mcpu=v99", ["v99", "hexagonv69"]),
        ("rocm -mcpu=gfx1", ["'gfx1'", "gfx"]),
        ("nvidia/a100", ["'nvidia/a100'", "nvidia/nvidia-a100"]),
        ("llvm -num-cores=many", ["num-cores", "a whole number", "'many'"]),
        ("c -system-lib=maybe", ["system-lib", "1 or 0", "'maybe'"]),
        ("llvm -mcpu", ["'mcpu'", "needs a value"]),
        ("llvm -mcpu -mtriple=wasm32", ["'mcpu'", "needs a value"]),
        ("llvm -mcpu=skylake -mcpu=haswell", ["'mcpu'", "twice"]),
        ("llvm mcpu=skylake", ["'mcpu=skylake'", "-name=value"]),
        ("llvm -model='a", ["cannot be read", "quotation"]),
        ("{not json", ["no valid JSON"]),
        ("", ["empty"]),
        ("metal -from_device=0", ["metal", "cannot be asked"]),
        ({"mcpu": "skylake"}, ["names no kind"]),
        ({"kind": "llvm", "mcpu": 3}, ["'mcpu'", "text", "3"]),
        ({"kind": "llvm", "num-cores": True}, ["num-cores", "whole number"]),
        ({"kind": "llvm", "libs": [1]}, ["'libs'", "list of texts"]),
        ({"kind": "llvm", "host": 1}, ["'host'", "target"]),
    ],
)
def test_mistakes(given: Any, words: list[str]) -> None:
    with pytest.raises(ValueError) as caught:
        Target(given)
    for word in words:
        assert word in str(caught.value)


def test_other_types_are_refused() -> None:
    with pytest.raises(TypeError, match="not from int"):
        Target(3)  # type: ignore[arg-type]


def test_cuda_without_an_architecture(monkeypatch: pytest.MonkeyPatch) -> None:
    kind_file = sys.modules[all_kinds()["cuda"].refine.__module__]
    monkeypatch.setattr(kind_file, "cuda_device", lambda index: None)
    with pytest.warns(UserWarning, match=r'Unable to detect CUDA.*"-arch=sm_50"') as caught:
        assert Target("cuda").arch == "sm_50"
    assert caught[0].filename == __file__
    with pytest.raises(ValueError, match="no such CUDA device"):
        Target("cuda -from_device=1")
    monkeypatch.setattr(
        kind_file, "cuda_device", lambda index: {"arch": "sm_90", "thread_warp_size": 32}
    )
    assert Target("cuda").arch == "sm_90"
    assert Target("cuda -from_device=0 -arch=sm_80").arch == "sm_80"


def test_a_kind_without_a_code_generator_says_so() -> None:
    assert isinstance(Target("llvm").kind.code_generator(), KernelCodeGenerator)
    assert isinstance(Target("c").kind.code_generator(), ProgramCodeGenerator)
    with pytest.raises(ValueError, match=r"'vulkan' .* no code generator.*builds for: .*llvm"):
        Target("vulkan").kind.code_generator()


def test_shortcuts() -> None:
    assert target_module.cuda("a100", arch="sm_80", options="-libs=cudnn").libs == ["cudnn"]
    assert target_module.arm_cpu("rasp4b64").mcpu == "cortex-a72"
    assert target_module.arm_cpu(options=["-mtriple=aarch64-linux-gnu"]).keys[0] == "arm_cpu"
    assert target_module.riscv_cpu("sifive-u74").mcpu == "sifive-u74"
    assert target_module.mali().device_name == "mali"
    assert target_module.bifrost().device_name == "bifrost"
    assert target_module.intel_graphics().keys[0] == "intel_graphics"
    assert target_module.adreno("x").model == "x"
    assert target_module.rocm().kind.name == "rocm"
    assert target_module.hexagon("v69").mcpu == "hexagonv69"
    assert target_module.create("llvm") == Target("llvm")
    with pytest.raises(ValueError, match="'v1'"):
        target_module.hexagon("v1")
    with pytest.raises(ValueError, match="sifive-u74"):
        target_module.riscv_cpu("sifive-u47")


@pytest.mark.parametrize("model", target_module.shortcuts._boards("arm_cpu"))
def test_arm_boards(model: str) -> None:
    assert target_module.arm_cpu(model).model == model


@pytest.mark.parametrize("model", target_module.shortcuts._boards("riscv_cpu"))
def test_riscv_boards(model: str) -> None:
    assert target_module.riscv_cpu(model).model == model


def test_reading_a_target_does_not_load_llvm() -> None:
    program = (
        "import sys, sterna.target as t\n"
        "t.Target('llvm -mcpu=native'); t.Target('llvm -mtriple=wasm32 -mattr=+simd128')\n"
        "assert t.Target('llvm -mtriple=wasm32 -mattr=+simd128').features.has_simd128\n"
        "assert not [m for m in sys.modules if m.startswith(('llvmlite', 'numpy'))]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_settings_and_cached_kernels_of_gpus_load_no_emitter_and_no_tuner() -> None:
    program = (
        "import sys, sterna.target as t\n"
        "from sterna.ir.pass_context import PassContext\n"
        "t.Target('cuda -arch=sm_90a').kind.code_generator()\n"
        "PassContext(config={'relay.ToMixedPrecision.keep_orig_output_dtype': True})\n"
        "heavy = ('sterna.codegen.nvptx.kernel', 'sterna.meta_schedule')\n"
        "assert not [name for name in heavy if name in sys.modules]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


WORDS = st.text(
    st.characters(codec="utf-8", exclude_categories=["C", "Z"]) | st.sampled_from(" ,'\"-=\\/"),
    min_size=0, max_size=8,
).map(str.strip)
FREE = st.sampled_from(["llvm", "c", "opencl", "metal", "vulkan", "hexagon", "webgpu", "aocl"])
NAMED = {"mcpu", "mattr", "mtriple", "mfloat-abi", "tag", "host", "from_device", "devices", "keys"}


def values(option: Option) -> st.SearchStrategy[Any]:
    if option.type == "int":
        return st.integers(-1000, 1 << 40)
    if option.type == "bool":
        return st.booleans()
    return WORDS if option.type == "str" else st.lists(WORDS, max_size=3)


@st.composite
def targets(draw: st.DrawFn, hosts: bool = True) -> dict[str, Any]:
    kind = all_kinds()[draw(FREE)]
    names = draw(st.lists(st.sampled_from(kind.option_names), unique=True, max_size=6))
    made: dict[str, Any] = {"kind": kind.name}
    for name in set(names) - NAMED:
        option = kind.option(name)
        assert option is not None
        made[name] = draw(values(option))
    if draw(st.booleans()):
        made["keys"] = draw(st.lists(WORDS, max_size=3))
    if kind.name in ("llvm", "c") and draw(st.booleans()):
        known = names_of(draw(st.sampled_from(list(instruction_sets()))))
        made["mcpu"] = draw(st.sampled_from(sorted(known.cpus)))
        if known.features:
            some = st.sampled_from(sorted(known.features))
            signed = st.builds(str.__add__, st.sampled_from("+-"), some)
            made["mattr"] = draw(st.lists(signed, max_size=3))
    if hosts and draw(st.booleans()):
        made["host"] = draw(targets(hosts=False))
    return made


@given(targets())
@settings(max_examples=300)
def test_random_targets_round_trip(given: dict[str, Any]) -> None:
    made = Target(given)
    assert Target(str(made)) == made
    assert Target(made.export()) == made
    assert Target(json.dumps(made.export())) == made
    assert hash(Target(str(made))) == hash(made)
    for name in set(given) - {"kind", "keys", "host"}:
        kept = made.attrs[name]
        wanted = [w for w in given[name] if w] if isinstance(given[name], list) else given[name]
        assert (list(kept) if isinstance(kept, tuple) else kept) == wanted
