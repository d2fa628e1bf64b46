"""Every case of every operator for CUDA: python -m tests.op.on_cuda [option ...] [name ...]

Without a GPU the cases are compiled, and NVIDIA's assembler takes them: no errors, no spills. With
--run they run on the first GPU, and their results are held against the reference; with --onnx so
do the tests of operators that ONNX has, as far as they pass on the processor. --arch=sm_80 says for
which GPU, --jobs=8 in how many processes, --every=9 takes only each ninth. Prints those that fail
and why, and how many there were.
"""

import argparse
import sys
import time
import traceback
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait

from sterna.contrib.onnx_coverage import listed, node_tests, run_test
from sterna.ir.types import TensorType, TupleType
from sterna.relay.op import AnyOp, Case, records
from sterna.relay.reference import value_of_type
from tests.gpu.ptxas import assemble
from tests.op.harness import arrays_of, built, check_case, flatten, type_of
from tests.support import ROOT

ONNX = "onnx:"


def cases() -> dict[str, tuple[AnyOp, Case]]:
    """The cases of operators by name."""
    return {
        f"{record.name}-{place}": (record, case)
        for record in records().values()
        for place, case in enumerate(record.cases)
    }


def onnx_names() -> list[str]:
    """Those of ONNX's tests that pass on the processor."""
    passing, _ = listed((ROOT / "docs" / "onnx_coverage.md").read_text("utf-8"))
    return [ONNX + name for name in passing]


def ptx_of(record: AnyOp, case: Case, arch: str) -> list[str]:
    """The programs of the kernels that compute a case."""
    if record.compute is None:
        return []
    attrs = record.attrs(**case.attrs) if record.attrs is not None else None
    operands = arrays_of(case)
    kind = record.infer(attrs, *[type_of(value) for value in operands])
    known = [type_of(want) for want in flatten(value_of_type(record, attrs, kind, operands))]
    exact = known[0] if isinstance(kind, TensorType) else TupleType(tuple(known))
    module, _, _ = built(record, attrs, operands, exact, f"cuda -arch={arch}")
    sources = [each.get_source() for each in module.imported_modules]
    return [source for source in sources if source]


def check_assembled(record: AnyOp, case: Case, arch: str) -> None:
    """The assembler takes a case's kernels, and keeps all that they hold in registers."""
    for program in ptx_of(record, case, arch):
        made = assemble(program, arch)
        assert not made.spilled_bytes, f"{made.spilled_bytes} bytes spilled"


def outcome(name: str, arch: str, runs: bool) -> str:
    """Why a case fails; empty if it does not."""
    try:
        if name.startswith(ONNX):
            run_test(node_tests()[name.removeprefix(ONNX)], f"cuda -arch={arch}")
        elif runs:
            check_case(*cases()[name], f"cuda -arch={arch}")
        else:
            check_assembled(*cases()[name], arch)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        text = " ".join(str(error).split())[:400]
        place = f"{where.filename.rpartition('/')[2]}:{where.lineno}"
        return f"{type(error).__name__}: {text} ({place})"
    return ""


# ---- in several processes, each of which may hang or lose its GPU ----

SECONDS = 60
"""What a case may take."""


def _serve(pipe: Connection, arch: str, runs: bool) -> None:
    """Check the cases that a pipe names, until one of them may have left the GPU unusable."""
    while True:
        reason = outcome(pipe.recv(), arch, runs)
        pipe.send(reason)
        if runs and reason and not reason.startswith("AssertionError"):
            return


class _Worker:
    """A process that checks one case at a time."""

    def __init__(self, arch: str, runs: bool) -> None:
        context = get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(other, arch, runs), daemon=True)
        self.process.start()
        other.close()
        self.name, self.until = "", 0.0

    def begin(self, name: str) -> None:
        """Hand a case over; the process may still be starting."""
        self.name, self.until = name, time.monotonic() + SECONDS
        self.pipe.send(name)

    def end(self) -> str | None:
        """Why the case failed; None while it runs."""
        try:
            if self.pipe.poll():
                return str(self.pipe.recv())
        except (EOFError, OSError):
            return "the process ended"
        return f"nothing came in {SECONDS} s" if time.monotonic() > self.until else None

    def close(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def check_all(names: list[str], arch: str, runs: bool, jobs: int) -> dict[str, str]:
    """Why each of the cases fails that do."""
    waiting, failed = list(reversed(names)), {}
    workers: list[_Worker] = []
    while waiting or workers:
        while waiting and len(workers) < jobs:
            workers.append(_Worker(arch, runs))
            workers[-1].begin(waiting.pop())
        wait([worker.pipe for worker in workers], timeout=1)
        for worker in list(workers):
            reason = worker.end()
            if reason is None:
                continue
            if reason:
                failed[worker.name] = reason
                print(f"{worker.name}: {reason}", flush=True)
            if waiting and not reason:
                worker.begin(waiting.pop())
            else:
                worker.close()
                workers.remove(worker)
    return failed


def main(given: list[str]) -> int:
    """How many cases whose names begin so, or of all, fail."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--arch", default="sm_80")
    options.add_argument("--jobs", type=int, default=2)
    options.add_argument("--run", action="store_true")
    options.add_argument("--every", type=int, default=1)
    options.add_argument("--onnx", action="store_true")
    options.add_argument("names", nargs="*", default=[""])
    asked = options.parse_args(given)
    known = onnx_names() if asked.onnx else list(cases())
    chosen = [name for name in known if name.startswith(tuple(asked.names))][:: asked.every]
    started = time.monotonic()
    failed = len(check_all(chosen, asked.arch, asked.run or asked.onnx, asked.jobs))
    seconds = time.monotonic() - started
    print(f"{len(chosen) - failed} of {len(chosen)} cases pass for {asked.arch}, {seconds:.0f} s")
    return failed


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 100))
