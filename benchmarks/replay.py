"""Which kernels a change of the compiler changed: every kernel of networks, for many machines.

    python benchmarks/replay.py save BEFORE --layers [--networks FILES_OR_FOLDERS...]
    ... change the compiler ...
    python benchmarks/replay.py save AFTER --layers [--networks FILES_OR_FOLDERS...]
    python benchmarks/replay.py compare BEFORE AFTER
    python benchmarks/replay.py diff BEFORE AFTER neoverse-n1/resnet18/3 [--code]
    python benchmarks/replay.py show AFTER neoverse-n1/resnet18/3 [--code]

save compiles down to loops, after all passes over them, and with --level object down to assembly or
C. A folder that was saved from the same sources is gone on with. compare exits with 1 if anything
differs.
"""

import argparse
import difflib
import json
import sys
import time
from collections import Counter
from pathlib import Path

from kernel_replay.compare import Comparison, Kernel, Pair, aligned, compare, find, kernels_of
from kernel_replay.machines import MACHINES, machines_named
from kernel_replay.records import Folder

STATUSES = ("unchanged", "rewritten", "changed", "appeared", "vanished")


def run_save(options: argparse.Namespace) -> int:
    """Compile and keep."""
    # the compiler is loaded only where it is needed
    from kernel_replay.layers import LAYERS
    from kernel_replay.save import onnx_files, save, tasks_of

    shapes = json.loads(options.shapes.read_text()) if options.shapes else {}
    layers = [name for name in LAYERS if options.layers and options.only in name]
    files = onnx_files(options.networks)
    tasks = tasks_of(
        options.folder, machines_named(options.machines), files, layers, shapes,
        options.level == "object", options.like,
    )
    if not tasks:
        raise ValueError("there is nothing to compile: give --layers or --networks")
    start, compiled = time.perf_counter(), 0
    for number, done in enumerate(save(tasks, options.jobs), 1):
        compiled += done.compiled
        told = done.error.partition("\n")[0] or (
            f"{done.kernels} kernels, {done.compiled} compiled"
            + (f", {done.failed} do not compile" if done.failed else "")
        )
        where = f"{done.task.machine}/{done.task.network}"
        print(f"[{number}/{len(tasks)}] {where}: {told}, {done.seconds:.1f} s", flush=True)
    print(f"{compiled} kernels compiled in {time.perf_counter() - start:.0f} s")
    return 0


def run_compare(options: argparse.Namespace) -> int:
    """Tell what differs."""
    before, after = Folder(options.before), Folder(options.after)
    found = list(compare(before, after, options.machines, options.networks))
    if not found:
        raise ValueError("the two folders have no network for one machine in common")
    differ = show_changes(found, options.limit)
    print()
    for machine in dict.fromkeys(one.machine for one in found):
        pairs = [pair for one in found if one.machine == machine for pair in one.pairs]
        count = Counter(pair.status for pair in pairs)
        parts = [f"{count[status]} {status}" for status in STATUSES if count[status]]
        constants = sum(pair.other_constants for pair in pairs)
        parts += [f"{constants} with other constants"] if constants else []
        print(f"{machine}: {', '.join(parts) or 'no kernels'}")
    return int(differ)


def show_changes(found: list[Comparison], limit: int) -> bool:
    """List what differs, kernels that changed alike once; whether there is anything."""
    alike: dict[tuple[str, ...], list[Pair]] = {}
    differ = False
    for one in found:
        if one.error[0] != one.error[1]:
            differ = True
            print(f"{one.machine}/{one.network}: {_or(one.error[0])} -> {_or(one.error[1])}")
        for pair in one.pairs:
            if pair.status != "unchanged" or pair.other_constants:
                functions = [k.call.function if k else "" for k in (pair.before, pair.after)]
                same = pair.status, str(pair.other_constants), one.machine, *functions
                alike.setdefault(same, []).append(pair)
    for pairs in list(alike.values())[:limit]:
        _show_pair(pairs)
    if len(alike) > limit:
        print(f"... and {len(alike) - limit} more; --limit shows them")
    return differ or bool(alike)


def _or(error: str) -> str:
    return error.partition("\n")[0] or "compiles"


def _show_pair(pairs: list[Pair]) -> None:
    pair = pairs[0]
    more = f" and {len(pairs) - 1} like it" if len(pairs) > 1 else ""
    constants = ", other constants" if pair.other_constants else ""
    print(f"{pair.known.key}{more}: {pair.status}{constants}")
    for sign, kernel in (("-", pair.before), ("+", pair.after)):
        if kernel is not None:
            print(f"  {sign} {_told(kernel)}")


def _told(kernel: Kernel) -> str:
    record = kernel.record
    if record.error:
        return record.error.partition("\n")[0]
    return f"{record.anchor} {kernel.call.result}: {record.schedule or 'default'}; {record.size}"


def text_of(folder: Folder, kernel: Kernel, code: bool) -> str:
    """A kernel's loops, or its code."""
    record = kernel.record
    if record.error:
        return record.error
    if code and not record.code:
        raise ValueError(f"'{folder.path}' has no code of {kernel.key}; save --level object")
    return folder.text(record.code if code else record.loops)


def run_show(options: argparse.Namespace) -> int:
    """Print a kernel."""
    folder = Folder(options.folder)
    kernel = find(folder, options.key)
    print(f"# {kernel.key}: {_told(kernel)}")
    print(text_of(folder, kernel, options.code))
    return 0


def run_diff(options: argparse.Namespace) -> int:
    """Print what differs in a kernel."""
    before, after = Folder(options.before), Folder(options.after)
    old = find(before, options.key)
    both = (kernels_of(folder, old.machine, old.network) for folder in (before, after))
    pair = next(p for p in aligned(*both) if p.before is not None and p.before.key == old.key)
    if pair.after is None:
        print(f"{old.key} vanished: {_told(old)}")
        return 1
    new = pair.after
    lines = list(difflib.unified_diff(
        text_of(before, old, options.code).splitlines(),
        text_of(after, new, options.code).splitlines(),
        f"{old.key}: {_told(old)}", f"{new.key}: {_told(new)}", lineterm="",
    ))
    print("\n".join(lines) or f"{old.key} is the same")
    return int(bool(lines))


def main() -> int:
    """Read the command and run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("save", help="compile kernels and keep what came out")
    one.add_argument("folder", type=Path)
    one.add_argument("--machines", nargs="+", default=[], metavar="MACHINE",
                     help=f"all, if none is named: {', '.join(MACHINES)}")
    one.add_argument("--networks", nargs="+", default=[], type=Path, metavar="PATH",
                     help="ONNX files, or folders of them")
    one.add_argument("--shapes", type=Path, metavar="FILE",
                     help="JSON: by network, shapes of inputs that it leaves open (or 1)")
    one.add_argument("--layers", action="store_true", help="layers that come with this program")
    one.add_argument("--only", default="", metavar="TEXT", help="layers with this in their names")
    one.add_argument("--level", choices=("tir", "object"), default="tir")
    one.add_argument("--like", type=Path, metavar="FOLDER",
                     help="take the code of kernels whose loops stand there from there: for "
                     "changes that leave code generators alone")
    one.add_argument("--jobs", type=int, default=2, help="processes that compile")
    one.set_defaults(run=run_save)
    one = commands.add_parser("compare", help="tell which kernels differ")
    one.add_argument("before", type=Path)
    one.add_argument("after", type=Path)
    one.add_argument("--machines", nargs="+", default=[], metavar="MACHINE")
    one.add_argument("--networks", nargs="+", default=[], metavar="NAME")
    one.add_argument("--limit", type=int, default=100, help="how many differences are listed")
    one.set_defaults(run=run_compare)
    one = commands.add_parser("show", help="print a kernel")
    one.add_argument("folder", type=Path)
    one.add_argument("key", metavar="MACHINE/NETWORK/PLACE")
    one.add_argument("--code", action="store_true", help="assembly or C instead of loops")
    one.set_defaults(run=run_show)
    one = commands.add_parser("diff", help="print what differs in a kernel")
    one.add_argument("before", type=Path)
    one.add_argument("after", type=Path)
    one.add_argument("key", metavar="MACHINE/NETWORK/PLACE")
    one.add_argument("--code", action="store_true", help="assembly or C instead of loops")
    one.set_defaults(run=run_diff)
    options = parser.parse_args()
    try:
        status: int = options.run(options)
    except (ValueError, OSError) as error:
        print(f"replay.py: {error}", file=sys.stderr)
        return 2
    return status


if __name__ == "__main__":
    sys.exit(main())
