"""What is known of instruction sets is known in sterna/isa: no feature's name stands elsewhere."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from sterna.isa import CAPABILITIES, InstructionSet, instruction_sets
from sterna.target.names import names_of
from tests.support import ROOT

PACKAGE = ROOT / "sterna"
HOME = (PACKAGE / "isa", PACKAGE / "target" / "processors")  # the latter are LLVM's own lists

# Names that mean something else where they stand.
OTHER_MEANINGS = {
    ("arith/sums.py", "fma"),  # the intrinsic of the loop IR
    ("codegen/opencl/prelude.py", "fma"),  # a name that OpenCL C keeps for itself
    ("frontend/torch/convert_elementwise.py", "fma"),  # an operator of PyTorch
    ("codegen/nvptx/kernel.py", "bf16"),  # LLVM's name of the type
    ("codegen/nvptx/fragments.py", "bf16"),  # PTX's name of the type
    ("tir/device_products.py", "bf16"),
    ("codegen/nvptx/register_products.py", "bf16"),  # PTX's name of the type
    ("codegen/nvptx/warpgroups.py", "bf16"),
    ("relay/text.py", "bf16"),  # how the text form writes numbers of bfloat16
    ("micro/platforms/arm.py", "vfp4d16sp"),  # an option of Zig's compiler
}
WORDS = {"vector"}  # s390x's facility, and plain English


def named_features(isa: InstructionSet) -> set[str]:
    """Every feature that the record of an instruction set names."""
    rows = [row for name in CAPABILITIES for row in getattr(isa, name)]
    needs = [name for row in rows for name in row.needs]
    brought = [name for spelling in isa.spellings for name in spelling.brings]
    others = [
        *isa.hosted_features, isa.soft_float, *isa.abis.values(), *isa.aliases.values(),
        *isa.linux_features.values(), *isa.loader_features.split(),
        *(name for name, _ in isa.triples), isa.tile_unit.feature if isa.tile_unit else "",
    ]
    return {*needs, *brought, *others} - {""}


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """The strings of a file that are no documentation, with their lines."""
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    said = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield node.lineno, node.value


def test_features_are_those_of_llvm() -> None:
    for isa in instruction_sets().values():
        known = names_of(isa.name)
        assert named_features(isa) - known.features.keys() == set(), isa.name
        assert {cpu for _, cpu in isa.cpus} <= known.cpus.keys()


def test_no_feature_is_named_elsewhere() -> None:
    every = set[str]().union(*map(named_features, instruction_sets().values()))
    # GPUs' architectures are processors as well, which targets and tags name.
    names = {name for name in every if len(name) > 1} - WORDS - set(names_of("nvptx").cpus)
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if any(home in path.parents for home in HOME):
            continue
        place = path.relative_to(PACKAGE).as_posix()
        for line, text in texts(path):
            words = {word.lstrip("+-") for word in re.split(r"[\s,;:'\"()=]|(?<=\w)[+]", text)}
            found += [
                f"{place}:{line}: {word}" for word in sorted(words & names)
                if (place, word) not in OTHER_MEANINGS
            ]
    assert not found, "\n".join(["sterna/isa should know these:", *found])


def test_no_instruction_is_named_elsewhere() -> None:
    own = re.compile(rf"llvm\.({'|'.join(instruction_sets())}|riscv|ppc)\.")
    found = [
        f"{path.relative_to(PACKAGE)}:{line}: {text}"
        for path in sorted(PACKAGE.rglob("*.py")) if HOME[0] not in path.parents
        for line, text in texts(path) if own.search(text)
    ]
    assert not found, "\n".join(["sterna/isa should know these:", *found])
