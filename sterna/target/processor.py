"""Checking -mtriple, -mcpu and -mattr, and the keys that follow from them."""

from collections.abc import Sequence

from sterna.isa import instruction_sets
from sterna.target.kind import Option, Value
from sterna.target.names import all_cpus, all_features, architectures_of_cpu, names_of
from sterna.target.triple import parse_triple
from sterna.target.wording import unknown

NATIVE = "native"

# The options of every kind whose code LLVM or a C compiler makes for a processor.
PROCESSOR_OPTIONS = (
    Option("mtriple"),
    Option("mcpu"),
    Option("mattr", "list"),
    Option("mabi"),
    Option("mfloat-abi", choices=("soft", "softfp", "hard")),
    Option("num-cores", "int"),
    Option("l1_cache_size_bytes", "int"),
    Option("l2_cache_size_bytes", "int"),
    Option("vector-width", "int"),
)

def base_name(cpu: str) -> str:
    """A processor's name without the +extensions that C compilers accept after it."""
    return cpu.partition("+")[0]


def refine_processor(attrs: dict[str, Value]) -> tuple[str, ...]:
    """Check the names and return the keys of the architecture, if it is known."""
    triple, cpu = attrs.get("mtriple"), attrs.get("mcpu")
    known: Sequence[str] = ()
    if triple:
        known = [parse_triple(str(triple)).architecture]
    if cpu and cpu != NATIVE:
        known = _check_cpu(base_name(str(cpu)), known)
    attrs |= _check_features(attrs, known)
    keys = {instruction_sets()[architecture].keys for architecture in known}
    return keys.pop() if len(keys) == 1 else ()


def _check_cpu(cpu: str, known: Sequence[str]) -> Sequence[str]:
    if known:
        cpus = names_of(known[0]).cpus
        if cpu not in cpus:
            raise unknown(cpu, cpus, f"It should be the -mcpu of a processor of {known[0]}")
        return known
    found = architectures_of_cpu(cpu)
    if not found:
        raise unknown(cpu, all_cpus(), "It should be the -mcpu of a processor that LLVM knows")
    return found


def _check_features(attrs: dict[str, Value], known: Sequence[str]) -> dict[str, Value]:
    given = attrs.get("mattr")
    if not isinstance(given, tuple):
        return {}
    signed = tuple(name if name[0] in "+-" else f"+{name}" for name in given)
    features = {f for name in known for f in names_of(name).features}
    for change in signed:
        if change[1:] not in (features or all_features()):
            where = " or ".join(known) if len(known) < len(instruction_sets()) // 2 else ""
            raise unknown(
                change[1:], features or all_features(),
                f"It should be a feature in -mattr{f' of {where}' if where else ''}",
            )
    return {"mattr": signed}
