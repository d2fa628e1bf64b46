"""Writes the lists of LLVM's processors and features in sterna/target/processors.

Run it with every new LLVM:  python -m sterna.target.list_llvm_names [architecture ...]

LLVM prints its names when the processor is called "help". Which features a processor has, and
which features another one brings with it, it does not print; but it inlines a function into
another only if the caller has every feature of the callee, so the inliner is asked. Each question
is put in a process of its own, because LLVM ends the process when a combination is impossible.
"""

import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import llvmlite.binding as llvm

from sterna.isa import instruction_sets

FOLDER = Path(__file__).resolve().parent / "processors"

# The triple that stands for an architecture, and the processor to ask about features alone.
TRIPLES = {
    "x86": ("i386-unknown-linux-gnu", "i386"),
    "aarch64": ("aarch64-unknown-linux-gnu", "generic"),
    "arm": ("arm-unknown-linux-gnueabi", "generic"),
    "riscv32": ("riscv32-unknown-elf", "generic-rv32"),
    "riscv64": ("riscv64-unknown-linux-gnu", "generic-rv64"),
    "wasm": ("wasm32-unknown-unknown", "mvp"),
    "powerpc": ("powerpc64le-unknown-linux-gnu", "generic"),
    "s390x": ("s390x-unknown-linux-gnu", "generic"),
    "loongarch": ("loongarch64-unknown-linux-gnu", "generic-la64"),
    # Names only: asking these about features tells nothing or ends the process.
    "hexagon": ("hexagon-unknown-elf", ""),
    "nvptx": ("nvptx64-nvidia-cuda", ""),
    "amdgcn": ("amdgcn-amd-amdhsa", ""),
    "avr": ("avr-unknown-unknown", ""),
    "mips": ("mips-unknown-linux-gnu", ""),
}

# What a 32-bit ARM triple brings with it, whatever the processor.
ARM_ARCHITECTURES = (
    "armv4t", "armv5te", "armv6", "armv6m", "armv7a", "armv7l", "armv7r", "armv7m", "armv7em",
    "armv7s", "armv7k", "armv8a", "armv8r", "armv8m.base", "armv8m.main", "armv8.1m.main",
)

# Only these features of AArch64 are instructions; the others tune the code generator.
_AARCH64_INSTRUCTIONS = re.compile(r"^(Enable|Support|FEAT_)")

# What the other architectures call their tuning.
_TUNING = re.compile(r"^(tune-|fast|slow|fuse|prefer|avoid|use-|dont|no-|expand|loop-|lsl-|m3$|"
                     r"reserve-|disable-|short-forward|enable-|log-|exact-|predict|tagged-|vl-dep|"
                     r"a\d+$|cortex|krait|kryo|swift|exynos|r\d+$|conditional|"
                     r".*-fusion$|.*-latency$|optimized-|dlen-|vxrm|unaligned|.*-sched.*)")

_HEADER = '''"""LLVM {version}'s names for {name}, each with what it brings along.

Written by sterna/target/list_llvm_names.py; do not edit.
"""

TEXT = """\\
{text}
"""
'''


def print_help(triple: str) -> None:
    """Have LLVM print its names for a triple on the standard error stream."""
    llvm.Target.from_triple(triple).create_target_machine(cpu="help")


def ask_inliner(triple: str, cpu: str, attributes: str, features: Sequence[str]) -> list[str]:
    """Those of the features that a processor with these attributes has."""
    machine = llvm.Target.from_triple(triple).create_target_machine()
    lines = [f'target triple = "{triple}"']
    calls = []
    for number, feature in enumerate(features):
        both = ",".join(filter(None, [attributes, f"+{feature}"]))
        lines.append(
            f"define internal i32 @callee{number}(i32 %x) "
            f'"target-cpu"="{cpu}" "target-features"="{both}" '
            "{ %y = mul i32 %x, 7 ret i32 %y }"
        )
        calls.append(f"%y{number + 1} = call i32 @callee{number}(i32 %y{number})")
    body = "\n".join(["%y0 = add i32 %x, 1", *calls, f"ret i32 %y{len(features)}"])
    own = f'"target-cpu"="{cpu}" "target-features"="{attributes}"'
    lines.append(f"define i32 @caller(i32 %x) {own} {{ {body} }}")
    module = llvm.parse_assembly("\n".join(lines))
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    options.inlining_threshold = 1_000_000
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    left = {int(number) for number in re.findall(r"call [^@\n]*@callee(\d+)\(", str(module))}
    return [name for number, name in enumerate(features) if number not in left]


def _child(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sterna.target.list_llvm_names", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def read_help(triple: str) -> tuple[list[str], dict[str, str]]:
    """The processors, and the features with their descriptions."""
    cpus: list[str] = []
    features: dict[str, str] = {}
    seen_features = False
    for line in _child("--help-of", triple).stderr.splitlines():
        if line.startswith("Available features"):
            seen_features = True
        elif match := re.fullmatch(r"  (\S+) +- (.*)", line):
            if seen_features:
                features[match[1]] = match[2]
            else:
                cpus.append(match[1])
    return cpus, features


Row = tuple[str, str]
"""A processor and the features that are added to it."""


def _ask(triple: str, rows: Sequence[Row], features: Sequence[str]) -> list[set[str]] | None:
    done = _child("--ask", triple, json.dumps(rows), ",".join(features))
    return [set(row) for row in json.loads(done.stdout)] if done.returncode == 0 else None


def held(triple: str, rows: Sequence[Row], features: Sequence[str]) -> list[set[str] | None]:
    """What each row has, or None for a row that LLVM finds impossible.

    A feature that LLVM finds impossible on a row is not had. What ends the process is found by
    halving.
    """
    answer = _ask(triple, rows, features)
    if answer is not None:
        return list(answer)
    if len(rows) > 1:
        half = len(rows) // 2
        return [*held(triple, rows[:half], features), *held(triple, rows[half:], features)]
    if _ask(triple, rows, ()) is None:
        return [None]
    allowed = possible(triple, rows[0], features)
    return list(_ask(triple, rows, allowed) or [set()])


def possible(triple: str, row: Row, features: Sequence[str]) -> list[str]:
    """The features that LLVM lets a row have at all."""
    if _ask(triple, [row], features) is not None:
        return list(features)
    if len(features) == 1:
        return []
    half = len(features) // 2
    return [*possible(triple, row, features[:half]), *possible(triple, row, features[half:])]


def held_by(triple: str, rows: Sequence[Row], features: Sequence[str]) -> list[set[str] | None]:
    """The same for many rows, several processes at a time."""
    batches = [rows[start : start + 16] for start in range(0, len(rows), 16)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        parts = pool.map(lambda batch: held(triple, batch, features), batches)
        return [one for part in parts for one in part]


def reduced(names: Iterable[str], implied: Mapping[str, set[str]]) -> list[str]:
    """The names that no other of them brings along."""
    left = set(names)
    for name in sorted(left):
        others = {o for o in left if o != name and name in implied.get(o, ())}
        # Two that bring each other along: one of them stays.
        if others:
            left.discard(name)
    return sorted(left)


def _is_instruction(architecture: str, name: str, description: str) -> bool:
    if architecture == "aarch64":
        return bool(_AARCH64_INSTRUCTIONS.search(description))
    isa = instruction_sets().get(architecture)
    if isa and isa.exclusive_features and re.fullmatch(isa.exclusive_features, name):
        return False
    return not _TUNING.match(name)


def _paragraph(head: str, names: Sequence[str]) -> str:
    return textwrap.fill(
        f"{head}: {' '.join(names)}".rstrip(), 100, subsequent_indent="  ",
        break_long_words=False, break_on_hyphens=False,
    )


def describe(architecture: str) -> str:
    """The lines of an architecture's file: `cpu`, `feature` and `arch`, then what each brings."""
    triple, neutral = TRIPLES[architecture]
    cpus, descriptions = read_help(triple)
    names = sorted(descriptions)
    if not neutral:
        lines = [_paragraph("cpus", cpus), _paragraph("features", names)]
        return "\n".join(line for line in lines if not line.endswith(":"))
    asked = [n for n in names if _is_instruction(architecture, n, descriptions[n])]
    asked = possible(triple, (neutral, ""), asked)
    isa = instruction_sets()[architecture]
    less = "".join(f"-{name}," for name in isa.implied_features)
    base = held(triple, [(neutral, less.rstrip(","))], asked)[0] or set()
    if architecture == "x86":
        # What even the i386 "has" is what the inliner of x86 does not look at.
        asked = [n for n in asked if n not in base]
        base = set()
    with_one = held_by(triple, [(neutral, f"{less}+{name}") for name in asked], asked)
    by_feature = dict(zip(asked, with_one, strict=True))
    by_cpu = dict(zip(cpus, held_by(triple, [(cpu, "") for cpu in cpus], asked), strict=True))
    # RISC-V speaks of the length of vectors only beside vectors.
    told = isa.length_features
    lengths = [n for n in names if told and re.fullmatch(told, n)]
    vectors = isa.registers[0].needs[0] if told else ""
    for found in (by_feature, by_cpu):
        vector = [name for name, got in found.items() if got and vectors in got]
        rows = [(name, "") if found is by_cpu else (neutral, f"+{name}") for name in vector]
        for name, got in zip(vector, held_by(triple, rows, lengths), strict=True):
            found[name] = (found[name] or set()) | (got or set())
    beside = [(neutral, f"+{vectors},+{name}") for name in lengths]
    by_feature |= dict(zip(lengths, held_by(triple, beside, lengths), strict=True))
    asked = sorted({*asked, *lengths})
    implied = {n: (got or set()) - base - {n} for n, got in by_feature.items()}
    # The same set for several names is written once.
    groups: dict[tuple[str, ...], list[str]] = {}
    for cpu, got in by_cpu.items():
        if got is not None:
            groups.setdefault(tuple(reduced(got, implied)), []).append(cpu)
    lines = [_paragraph(f"cpu {' '.join(same)}", have) for have, same in groups.items()]
    lines += [
        _paragraph(f"feature {n}", reduced(implied[n], implied)) for n in asked if implied[n]
    ]
    lines.append(_paragraph("features", [n for n in names if not implied.get(n)]))
    if architecture == "arm":
        for name in ARM_ARCHITECTURES:
            got = held(f"{name}-unknown-none-eabi", [("generic", "")], asked)[0]
            lines.append(_paragraph(f"arch {name}", reduced(got or (), implied)))
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> None:
    """Write the files of the named architectures, or of all of them."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    if arguments[:1] == ["--help-of"]:
        print_help(arguments[1])
        return
    if arguments[:1] == ["--ask"]:
        triple, rows, names = arguments[1:]
        asked = names.split(",") if names else []
        told = [ask_inliner(triple, cpu, more, asked) for cpu, more in json.loads(rows)]
        print(json.dumps(told))
        return
    version = ".".join(map(str, llvm.llvm_version_info))
    for name in arguments or TRIPLES:
        text = _HEADER.format(version=version, name=name, text=describe(name))
        (FOLDER / f"{name}.py").write_text(text, encoding="utf-8")
        print(f"{name}: {len(text.splitlines())} lines")


if __name__ == "__main__":
    main(sys.argv[1:])
