"""Every case of every operator for CUDA: python -m tests.op.on_cuda [option ...] [name ...]

Without a GPU the cases are compiled, and NVIDIA's assembler takes them: no errors, no spills. With
--run they run on the first GPU, and their results are held against the reference. --arch=sm_80
says for which GPU, --jobs=8 in how many processes. Prints those that fail and why, and how many
there were.
"""

import argparse
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from sterna.ir.types import TensorType, TupleType
from sterna.relay.op import AnyOp, Case, records
from sterna.relay.reference import value_of_type
from tests.gpu.ptxas import assemble
from tests.op.harness import arrays_of, built, check_case, flatten, type_of


def cases() -> dict[str, tuple[AnyOp, Case]]:
    """The cases of operators by name."""
    return {
        f"{record.name}-{place}": (record, case)
        for record in records().values()
        for place, case in enumerate(record.cases)
    }


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
    record, case = cases()[name]
    try:
        if runs:
            check_case(record, case, f"cuda -arch={arch}")
        else:
            check_assembled(record, case, arch)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        text = str(error).strip().replace("\n", " ")[:600]
        place = f"{where.filename.rpartition('/')[2]}:{where.lineno}"
        return f"{type(error).__name__}: {text} ({place})"
    return ""


def main(given: list[str]) -> int:
    """How many cases whose names begin so, or of all, fail."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--arch", default="sm_80")
    options.add_argument("--jobs", type=int, default=2)
    options.add_argument("--run", action="store_true")
    options.add_argument("--every", type=int, default=1)
    options.add_argument("names", nargs="*", default=[""])
    asked = options.parse_args(given)
    chosen = [name for name in cases() if name.startswith(tuple(asked.names))][:: asked.every]
    failed, started = 0, time.monotonic()
    with ProcessPoolExecutor(asked.jobs, get_context("spawn")) as pool:
        told = {name: pool.submit(outcome, name, asked.arch, asked.run) for name in chosen}
        for name, answer in told.items():
            try:
                reason = answer.result()
            except Exception as error:
                reason = f"the process ended: {error}"
            if reason:
                failed += 1
                print(f"{name}: {reason}", flush=True)
    seconds = time.monotonic() - started
    print(f"{len(chosen) - failed} of {len(chosen)} cases pass for {asked.arch}, {seconds:.0f} s")
    return failed


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 100))
