"""Every case of every operator on the first OpenCL device: python -m tests.op.on_opencl [name ...]

With --onnx the tests of operators that ONNX has, as far as they pass on the processor. Prints those
that fail and why, and how many there were. The test suite runs a sample of them.
"""

import sys
import traceback
from collections.abc import Callable
from functools import partial

from sterna.contrib.onnx_coverage import listed, node_tests, run_test
from sterna.relay.op import records
from tests.op.harness import check_case
from tests.support import ROOT


def cases(target: str) -> dict[str, Callable[[], object]]:
    """The cases of operators by name."""
    return {
        f"{record.name}-{place}": partial(check_case, record, case, target)
        for record in records().values()
        for place, case in enumerate(record.cases)
    }


def onnx_cases(target: str) -> dict[str, Callable[[], object]]:
    """Those of ONNX's tests that pass on the processor, by name."""
    passing, _ = listed((ROOT / "docs" / "onnx_coverage.md").read_text("utf-8"))
    return {
        name.removeprefix("test_"): partial(run_test, node_tests()[name], target)
        for name in passing
    }


def main(names: list[str], target: str = "opencl") -> int:
    """How many cases whose names begin so, or of all, fail."""
    known = onnx_cases(target) if "--onnx" in names else cases(target)
    starts = tuple(name for name in names if name != "--onnx") or ("",)
    chosen = {name: check for name, check in known.items() if name.startswith(starts)}
    failed = 0
    for name, check in chosen.items():
        try:
            check()
        except Exception as error:
            failed += 1
            where = traceback.extract_tb(error.__traceback__)[-1]
            text = str(error).strip().replace("\n", " ")[:300]
            print(f"{name}: {type(error).__name__}: {text}", end=" ")
            print(f"({where.filename.rpartition('/')[2]}:{where.lineno})", flush=True)
    print(f"{len(chosen) - failed} of {len(chosen)} cases pass")
    return failed


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 100))
