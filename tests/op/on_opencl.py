"""Every case of every operator on the first OpenCL device: python -m tests.op.on_opencl [name ...]

Prints those that fail and why, and how many there were. The test suite runs a sample of them.
"""

import sys
import time
import traceback

from sterna.relay.op import records
from tests.op.harness import check_case


def main(names: list[str], target: str = "opencl") -> int:
    """How many cases of the operators whose names begin so, or of all, fail."""
    failed = count = 0
    for record in records().values():
        if names and not any(record.name.startswith(name) for name in names):
            continue
        for place, case in enumerate(record.cases):
            count += 1
            start = time.perf_counter()
            try:
                check_case(record, case, target)
            except Exception as error:
                failed += 1
                where = traceback.extract_tb(error.__traceback__)[-1]
                text = str(error).strip().replace("\n", " ")[:300]
                print(f"{record.name}-{place}: {type(error).__name__}: {text}", end=" ")
                print(f"({where.filename.rpartition('/')[2]}:{where.lineno})", flush=True)
            seconds = time.perf_counter() - start
            if seconds > 20:
                print(f"{record.name}-{place}: {seconds:.0f} s", flush=True)
    print(f"{count - failed} of {count} cases pass")
    return failed


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 100))
