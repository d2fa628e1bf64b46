"""The command python -m sterna.testing.fuzz."""

import argparse
import secrets
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from sterna.support.table import lay_out
from sterna.testing.fuzz.fuzzer import all_fuzzers, find_fuzzer
from sterna.testing.fuzz.runner import Tally, fuzz


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the fuzzers; 1 if something was found."""
    known = all_fuzzers()
    parser = argparse.ArgumentParser(
        prog="python -m sterna.testing.fuzz",
        description="Throw random and broken input at every part, and print small programs that "
        "show what went wrong.",
        epilog="; ".join(f"{name}: {fuzzer.about}" for name, fuzzer in known.items()),
    )
    parser.add_argument("--minutes", type=float, default=1.0, help="how long, all in all")
    parser.add_argument("--seed", type=int, help="where cases come from; another one each time")
    parser.add_argument(
        "--only", action="append", metavar="NAME",
        help="this fuzzer, or that of a module which has one as FUZZER; may be repeated",
    )
    parser.add_argument(
        "--corpus", type=Path, metavar="FOLDER",
        help="where findings are kept, and tried first; models for the importers lie in its "
        "folder onnx",
    )
    options = parser.parse_args(arguments)
    unknown = [name for name in options.only or () if name not in known and "." not in name]
    if unknown:
        parser.error(f"there is no fuzzer {unknown[0]}, only {', '.join(known)}")
    chosen = [known.get(name) or find_fuzzer(name) for name in options.only or known]
    seed = secrets.randbelow(1 << 31) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # both end with what came of it
    tallies = fuzz(chosen, options.minutes * 60, seed, options.corpus, _tell)
    print(_summary(tallies))
    return int(any(tally.findings for tally in tallies))


def _tell(text: str) -> None:
    print(text, flush=True)


def _summary(tallies: Sequence[Tally]) -> str:
    return lay_out([
        ("Fuzzer", [tally.fuzzer for tally in tallies]),
        ("Seed", [str(tally.seed) for tally in tallies]),
        ("Cases", [str(tally.cases) for tally in tallies]),
        ("Seconds", [f"{tally.seconds:.0f}" for tally in tallies]),
        ("Found", [str(len(tally.findings)) for tally in tallies]),
        ("Endings", [tally.skipped or _endings(tally) for tally in tallies]),
    ])


def _endings(tally: Tally) -> str:
    return ", ".join(f"{count} {ending}" for ending, count in sorted(tally.endings.items()))


if __name__ == "__main__":
    sys.exit(main())
