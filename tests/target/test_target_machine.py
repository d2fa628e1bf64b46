"""The machines behind targets, and questions to their features."""

import importlib
import subprocess
import sys
import threading
from pathlib import Path

import llvmlite.binding as binding
import pytest

import sterna.target.host as host_module
from sterna.isa import instruction_sets
from sterna.isa.aarch64 import AARCH64
from sterna.isa.arm_cores import CORES
from sterna.target import Machine, Target, kind, machine_of, processor_of
from sterna.target.host import Host
from sterna.target.names import names_of
from sterna.target.triple import in_full, parse_triple

# Target; architecture, pointer bits, vector bits, vector registers, fused multiply-add, object.
MACHINES = [
    ("llvm -mtriple=x86_64-linux-gnu", ("x86", 64, 128, 16, False, "elf")),
    ("llvm -mtriple=x86_64-linux-gnu -mcpu=haswell", ("x86", 64, 256, 16, True, "elf")),
    ("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512", ("x86", 64, 512, 32, True, "elf")),
    ("llvm -mtriple=x86_64-pc-windows-msvc -mcpu=sapphirerapids",
     ("x86", 64, 512, 32, True, "coff")),
    ("llvm -mtriple=x86_64-linux-gnu -mcpu=znver3", ("x86", 64, 256, 16, True, "elf")),
    ("llvm -mtriple=x86_64-linux-gnu -mattr=+avx2", ("x86", 64, 256, 16, False, "elf")),
    ("llvm -mtriple=x86_64-linux-gnu -mcpu=haswell -mattr=-avx",
     ("x86", 64, 128, 16, False, "elf")),
    ("llvm -mtriple=i386-linux-gnu", ("x86", 32, 0, 8, False, "elf")),
    ("llvm -mtriple=i686-linux-gnu -mcpu=pentium4", ("x86", 32, 128, 8, False, "elf")),
    ("llvm -mtriple=aarch64-linux-gnu", ("aarch64", 64, 128, 32, True, "elf")),
    ("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v1", ("aarch64", 64, 128, 32, True, "elf")),
    ("llvm -mtriple=arm64-apple-macos", ("aarch64", 64, 128, 32, True, "macho")),
    ("llvm -mtriple=armv7l-linux-gnueabihf", ("arm", 32, 128, 16, False, "elf")),
    ("llvm -mtriple=armv7a-linux-gnueabihf -mcpu=cortex-a7", ("arm", 32, 128, 16, True, "elf")),
    ("llvm -mtriple=thumbv7em-none-eabi -mcpu=cortex-m4", ("arm", 32, 0, 0, True, "elf")),
    ("llvm -mtriple=thumbv8.1m.main-none-eabi -mcpu=cortex-m55", ("arm", 32, 128, 8, True, "elf")),
    ("c -mcpu=cortex-m4", ("arm", 32, 0, 0, True, "elf")),
    ("c -mcpu=cortex-m0", ("arm", 32, 0, 0, False, "elf")),
    ("llvm -mtriple=riscv64-unknown-linux-gnu -mcpu=generic-rv64",
     ("riscv64", 64, 0, 0, False, "elf")),
    ("llvm -mtriple=riscv64-unknown-linux-gnu -mcpu=generic-rv64 -mattr=+v",
     ("riscv64", 64, 128, 32, True, "elf")),
    ("llvm -mtriple=riscv64-unknown-linux-gnu -mcpu=sifive-x280",
     ("riscv64", 64, 512, 32, True, "elf")),
    ("llvm -mtriple=riscv32-unknown-elf -mcpu=sifive-e31", ("riscv32", 32, 0, 0, False, "elf")),
    ("llvm -mtriple=wasm32", ("wasm", 32, 0, 0, False, "wasm")),
    ("llvm -mtriple=wasm32-wasi -mattr=+simd128", ("wasm", 32, 128, 16, False, "wasm")),
    ("hexagon -mcpu=v68", ("hexagon", 32, 0, 0, True, "elf")),
    ("hexagon -mcpu=v68 -mattr=+hvxv68,+hvx-length128b", ("hexagon", 32, 1024, 32, True, "elf")),
    ("llvm -mtriple=powerpc64le-linux-gnu -mcpu=pwr9", ("powerpc", 64, 128, 64, True, "elf")),
    ("llvm -mtriple=s390x-linux-gnu -mcpu=z14", ("s390x", 64, 128, 32, True, "elf")),
    ("llvm -mtriple=loongarch64-linux-gnu -mcpu=la464", ("loongarch", 64, 256, 32, True, "elf")),
    ("nvptx -mcpu=sm_80", ("nvptx", 64, 128, 0, True, "elf")),
    ("cuda -arch=sm_80", ("nvptx", 64, 128, 0, True, "elf")),
    ("rocm -mcpu=gfx90a", ("amdgcn", 64, 128, 0, True, "elf")),
]


@pytest.mark.parametrize(("text", "wanted"), MACHINES)
def test_machines(text: str, wanted: tuple[str, int, int, int, bool, str]) -> None:
    made = machine_of(Target(text))
    assert wanted == (
        made.architecture, made.pointer_bits, made.vector_bits, made.vector_registers,
        made.provides("fused_multiply_add"), made.object_format,
    )
    known = instruction_sets()[made.architecture].core(made.cpu)
    assert made.core is known
    assert made.l1_bytes == (known.l1_kib * 1024 if known.l1_kib else None)
    ahead = {"aarch64": 4, "arm": 2}.get(made.architecture, 0)
    told = processor_of(Target(text))
    assert told.operand_registers == (ahead if made.vector_bits else 0)


def test_what_a_machine_says_to_llvm() -> None:
    made = Target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72 -mattr=+crc,-lse").resolved()
    assert (made.triple, made.cpu, made.features) == (
        "aarch64-unknown-linux-gnu", "cortex-a72", "+crc,-lse",
    )
    assert (made.lanes(32), made.lanes(8), made.endianness) == (4, 16, "little")
    assert machine_of(Target("hexagon -mcpu=v68")).cpu == "hexagonv68"
    assert machine_of(Target("hexagon")).triple == "hexagon-unknown-unknown-elf"
    assert machine_of(Target("llvm -mtriple=arm64-apple-macos")).cpu == "apple-m1"
    assert machine_of(Target("cuda -arch=sm_80")).cpu == "sm_80"
    assert machine_of(Target("llvm -mtriple=s390x-linux-gnu")).endianness == "big"
    arm = machine_of(Target("c -mcpu=cortex-m4 -mfloat-abi=soft"))
    assert (arm.triple, arm.features) == ("thumb-unknown-none-eabi", "+soft-float")
    arm = machine_of(Target("c -mcpu=cortex-m4 -mfloat-abi=hard"))
    assert (arm.triple, arm.float_abi) == ("thumb-unknown-none-eabihf", "hard")
    assert machine_of(Target("llvm -mtriple=wasm32 -vector-width=256")).vector_bits == 256
    assert machine_of(Target("llvm -mtriple=wasm32 -num-cores=3")).cores == 3
    told = machine_of(Target("llvm -mcpu=native -l1_cache_size_bytes=4096 -l2_cache_size_bytes=9"))
    assert (told.l1_bytes, told.l2_bytes) == (4096, 9), "what is told counts, whatever is here"


def a_host(monkeypatch: pytest.MonkeyPatch, triple: str, cpu: str, *features: str) -> None:
    told = tuple((name[1:], name[0] == "+") for name in features)
    monkeypatch.setattr(host_module, "host", lambda: Host(triple, cpu, told))
    monkeypatch.setattr(host_module, "cache_bytes", lambda: {1: 1 << 15, 2: 1 << 20})
    monkeypatch.setattr(host_module, "cores", lambda: 6)
    machine_of.cache_clear()


@pytest.fixture(autouse=True)
def _fresh_machines() -> object:
    yield
    machine_of.cache_clear()


def test_native_is_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    a_host(monkeypatch, "x86_64-unknown-linux-gnu", "skylake-avx512", "+avx2", "+fma", "-avx512f")
    target = Target("native")
    made = target.resolved()
    assert str(target) == "llvm -keys=cpu -mcpu=native"
    assert (made.cpu, made.features) == ("skylake-avx512", "+avx2,+fma,-avx512f")
    # What it has, not what its name says.
    assert made.vector_bits == 256 and made.provides("fused_multiply_add")
    assert (made.l1_bytes, made.l2_bytes, made.l3_bytes, made.cores) == (1 << 15, 1 << 20, None, 6)
    assert target.features.has_avx2 and not target.features.has_avx512f
    assert machine_of(Target("llvm -mcpu=native -mattr=-avx2")).vector_bits == 256
    assert machine_of(Target("llvm -mcpu=native -mattr=-avx")).vector_bits == 128


def test_native_has_what_its_name_says(monkeypatch: pytest.MonkeyPatch) -> None:
    a_host(monkeypatch, "arm64-apple-darwin23.1.0", "apple-m1", "+neon")
    made = Target("native").resolved()
    assert made.provides("dot4") and made.provides("fp16_arithmetic")
    assert made.core is CORES["apple-m1"]


LISTED = "processor\t: 0\nFeatures\t: fp asimd {}\nCPU part\t: {}\n\nprocessor\t: 1\n"


@pytest.mark.parametrize(
    ("cpu", "listed", "dot", "half", "lacks"),
    [
        ("neoverse-n1", "fphp asimdhp asimdrdm lrcpc asimddp ssbs", "dotprod", True, "i8mm"),
        ("neoverse-v1", "asimdhp asimddp i8mm bf16", "i8mm", True, "sve"),  # hidden by its host
        ("generic", "asimdhp asimddp i8mm bf16 sve sve2", "i8mm", True, "fp16fml"),
        ("cortex-a72", "aes crc32", "", False, "dotprod"),
    ],
)
def test_what_linux_lists_of_aarch64(
    cpu: str, listed: str, dot: str, half: bool, lacks: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "cpuinfo").write_text(LISTED.format(listed, "0xd0c"))
    monkeypatch.setattr(host_module, "_PROCESSORS", tmp_path / "cpuinfo")
    monkeypatch.setattr(binding, "get_process_triple", lambda: "aarch64-linux-gnu")
    monkeypatch.setattr(binding, "get_host_cpu_name", lambda: cpu)
    monkeypatch.setattr(binding, "get_host_cpu_features", lambda: {"neon": True})
    monkeypatch.setattr(host_module, "host", host_module.host.__wrapped__)
    machine_of.cache_clear()
    made = Target("native").resolved()
    row = made.instructions.dot4
    assert (row.needs[0] if row else "") == dot
    assert (made.provides("fp16_arithmetic"), made.has(lacks)) == (half, False)
    assert f"-{lacks}" in made.features.split(",")


def test_a_system_that_lists_no_features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "_PROCESSORS", tmp_path / "missing")
    assert host_module.listed_features(AARCH64) == {}
    (tmp_path / "empty").write_text("processor : 0\n")
    monkeypatch.setattr(host_module, "_PROCESSORS", tmp_path / "empty")
    assert host_module.listed_features(AARCH64) == {}


def test_a_processor_without_a_triple(monkeypatch: pytest.MonkeyPatch) -> None:
    a_host(monkeypatch, "aarch64-unknown-linux-gnu", "neoverse-n1", "+neon", "+dotprod")
    assert machine_of(Target("llvm")).cpu == "generic"
    assert machine_of(Target("llvm -mcpu=cortex-a72")).triple == "aarch64-unknown-linux-gnu"
    assert machine_of(Target("llvm -mcpu=skylake")).triple == "x86_64-unknown-linux-gnu"
    with pytest.raises(ValueError, match="no x86_64"):
        machine_of(Target("llvm -mcpu=native -mtriple=x86_64-linux-gnu"))


def test_this_machine() -> None:
    made = machine_of(Target("llvm -mcpu=native"))
    assert made.cpu and made.triple and made.cores
    assert isinstance(machine_of(Target("llvm")), Machine)
    held = {name for name, there in host_module.host().features if there}
    assert held - set(names_of(made.architecture).features) == set()


def test_no_machine() -> None:
    with pytest.raises(ValueError, match="'opencl' describes no processor"):
        machine_of(Target("opencl"))


@pytest.mark.parametrize(
    ("text", "has", "lacks"),
    [
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72", ["asimd", "neon", "crc"],
         ["dotprod", "sve", "dsp", "mve", "matmul_i8", "avx2"]),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v1",
         ["asimd", "dotprod", "sve", "matmul_i8", "fp16_simd", "bf16"], ["sve2", "sme"]),
        ("llvm -mtriple=aarch64-linux-gnu -mattr=+dotprod", ["dotprod", "asimd"], ["sve"]),
        ("llvm -mtriple=aarch64-linux-gnu -mattr=+v8.2a,+sve", ["sve", "fullfp16"], ["dotprod"]),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1 -mattr=-neon", [],
         ["asimd", "dotprod"]),
        ("c -mcpu=cortex-m4", ["dsp"], ["mve", "asimd"]),
        ("c -mcpu=cortex-m55", ["dsp", "mve", "mve_fp"], ["asimd"]),
        ("c -mcpu=cortex-m0", [], ["dsp", "mve"]),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=cascadelake", ["avx512vnni", "sse4_2"],
         ["amx_int8"]),
        ("llvm -mtriple=riscv64-unknown-elf -mattr=+v", ["v", "rvv", "zve64d", "f"], ["c"]),
        ("opencl", [], ["dotprod", "avx2"]),
    ],
)
def test_features(text: str, has: list[str], lacks: list[str]) -> None:
    features = Target(text).features
    assert {name: getattr(features, f"has_{name}") for name in (*has, *lacks)} == {
        **dict.fromkeys(has, True),
        **dict.fromkeys(lacks, False),
    }
    assert features.is_aarch64 == ("aarch64" in text)


def test_a_feature_that_does_not_exist() -> None:
    features = Target("llvm -mtriple=wasm32").features
    with pytest.raises(AttributeError, match=r"'dotprd'. Candidates are: .*dotprod"):
        _ = features.has_dotprd
    with pytest.raises(AttributeError, match="has_<feature>"):
        _ = features.dotprod
    assert "mutable-globals" in features and "simd128" not in features


@pytest.mark.parametrize("architecture", instruction_sets())
def test_lists_of_names(architecture: str) -> None:
    names = names_of(architecture)
    assert names.cpus
    for held in (*names.cpus.values(), *names.features.values(), *names.triples.values()):
        assert held <= set(names.features)


def test_lists_are_those_of_llvm() -> None:
    command = [sys.executable, "-m", "sterna.target.list_llvm_names", "--help-of"]
    for architecture, triple in (("aarch64", "aarch64-linux-gnu"), ("wasm", "wasm32")):
        told = subprocess.run([*command, triple], capture_output=True, text=True, check=True).stderr
        listed = {line.split()[0] for line in told.splitlines() if line.startswith("  ")}
        names = names_of(architecture)
        assert (set(names.cpus) | set(names.features)) - listed == set()


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("x86_64-linux-gnu", "x86_64-unknown-linux-gnu"),
        ("x86_64-pc-linux-gnu", "x86_64-pc-linux-gnu"),
        ("armv7l-linux-gnueabihf", "armv7l-unknown-linux-gnueabihf"),
        ("arm-none-eabi", "arm-unknown-none-eabi"),
        ("arm-none-linux-gnueabihf", "arm-none-linux-gnueabihf"),
        ("aarch64-linux-android21", "aarch64-unknown-linux-android21"),
        ("aarch64-apple-darwin23.1.0", "aarch64-apple-darwin23.1.0"),
        ("aarch64-elf", "aarch64-unknown-unknown-elf"),
        ("riscv32-unknown-elf", "riscv32-unknown-unknown-elf"),
        ("wasm32-unknown-unknown", "wasm32-unknown-unknown"),
        ("wasm32", "wasm32"),
        ("nvptx64-nvidia-cuda", "nvptx64-nvidia-cuda"),
        ("x86_64-pc-windows-msvc", "x86_64-pc-windows-msvc"),
        ("x86_64-w64-windows-gnu", "x86_64-w64-windows-gnu"),
        ("hexagon-unknown-elf", "hexagon-unknown-unknown-elf"),
        ("avr-a-b-c-d", "avr-a-b-c-d"),
    ],
)
def test_triples_in_full(text: str, full: str) -> None:
    """LLVM, given the full one, finds the parts that it finds when it puts the text in order."""
    assert in_full(text) == in_full(full) == full
    llvm = importlib.import_module("llvmlite.binding")
    assert llvm.get_triple_parts(full) == llvm.get_triple_parts(text)


@pytest.mark.parametrize("text", ["x86_64-linux-gnu", "thumbebv7em-none-eabi", "aarch64_be-elf"])
def test_triples(text: str) -> None:
    triple = parse_triple(text)
    assert triple.little_endian == (text == "x86_64-linux-gnu")
    assert triple.object_format == "elf"


def test_scopes() -> None:
    assert Target.current() is None
    with pytest.raises(RuntimeError, match="no target is set"):
        Target.current(allow_none=False)
    with Target("c") as outer:
        assert Target.current() is outer
        with pytest.raises(KeyError), Target("llvm") as inner:
            assert Target.current(allow_none=False) is inner
            with outer:
                assert Target.current() is outer
            raise KeyError
        assert Target.current() is outer
    assert Target.current() is None


def test_scopes_belong_to_a_thread() -> None:
    seen: list[Target | None] = []

    def work() -> None:
        seen.append(Target.current())
        with Target("c") as own:
            barrier.wait()
            seen.append(Target.current())
            assert Target.current() is own
            barrier.wait()

    barrier = threading.Barrier(2)
    with Target("llvm") as mine:
        thread = threading.Thread(target=work)
        thread.start()
        barrier.wait()
        assert Target.current() is mine
        barrier.wait()
        thread.join()
    assert seen == [None, Target("c")]


KIND_FILE = """
from sterna.target.kind import Option, TargetKind

KIND = TargetKind("abacus", 12, ("abacus",), (Option("beads", "int", 10),))
"""


@pytest.fixture
def kinds_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> object:
    package = importlib.import_module("sterna.target.kinds")
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    kind._kinds.cache_clear()
    yield tmp_path
    kind._kinds.cache_clear()
    for name in ("abacus", "other"):
        sys.modules.pop(f"sterna.target.kinds.{name}", None)


def test_a_kind_is_found_by_its_file(kinds_folder: Path) -> None:
    (kinds_folder / "abacus.py").write_text(KIND_FILE)
    made = Target("abacus -beads=7")
    assert (made.beads, made.keys, made.get_target_device_type()) == (7, ["abacus"], 12)
    assert Target(str(made)) == made
    assert "abacus" in Target.list_kinds()


def test_kind_files_must_declare_one_new_kind(kinds_folder: Path) -> None:
    (kinds_folder / "other.py").write_text("KIND = 1\n")
    with pytest.raises(TypeError, match="other declares no target kind"):
        Target.list_kinds()
    (kinds_folder / "other.py").write_text(KIND_FILE.replace("abacus", "llvm") + "\n# again\n")
    sys.modules.pop("sterna.target.kinds.other", None)
    importlib.invalidate_caches()
    with pytest.raises(ValueError, match="'llvm', which exists already"):
        Target.list_kinds()


def test_processors_are_known_by_their_names() -> None:
    """Caches of a processor that is not here; one that nobody knows has none."""
    made = machine_of(Target("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1"))
    assert (made.l1_bytes, made.l2_bytes) == (64 << 10, 1 << 20)
    told = made.core.throughput
    assert (told.multiply_adds, told.loads, told.latency) == (2, 2, 4)
    plain = machine_of(Target("llvm -mtriple=aarch64-linux-gnu"))
    assert plain.l1_bytes is None and plain.core.throughput.issue_width == 4
