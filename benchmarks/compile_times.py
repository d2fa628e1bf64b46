"""Cold compile times: from a model's file to its first result, with an empty cache.

    python benchmarks/compile_times.py MODEL.onnx... [--processors 2] [--markdown]

Each model is compiled in a process of its own, which finds Python's bytecode as an installed
package has it. Beside the time on the clock stands that of all processors, of the compiler's
processes together, which a busy machine changes less.
"""

import argparse
import compileall
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rows import show

import sterna
from sterna.relay.random_inputs import random_inputs
from sterna.support.progress import StageTimes, watching

HEAD = ("model", "seconds", "CPU seconds", "of it stages, on the clock")


def compile_once(path: Path) -> dict[str, object]:
    """In a fresh process: seconds, CPU seconds and the stages of one compilation."""
    stages = StageTimes()
    start = time.perf_counter()
    with watching(stages):
        model = sterna.compile(path)
        model(**random_inputs(model.inputs))
    seconds = time.perf_counter() - start
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = sum(each.ru_utime + each.ru_stime for each in used)
    return {"seconds": seconds, "cpu": cpu, "stages": stages.seconds}


def measure(path: Path, processors: int) -> tuple[str, ...]:
    """A model's row, compiled on some processors by a process that has an empty cache."""
    unset = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run(
            [sys.executable, __file__, "--once", str(processors), str(path)],
            env={**unset, "STERNA_CACHE": cache}, stdout=subprocess.PIPE, check=True,
        )
    found = json.loads(done.stdout)
    stages = ", ".join(f"{name} {spent:.1f}" for name, spent in found["stages"].items())
    return (path.stem, f"{found['seconds']:.1f}", f"{found['cpu']:.1f}", stages)


def main() -> None:
    """Measure every model that was named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--processors", type=int, default=0, help="0: all that there are")
    parser.add_argument("--once", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--markdown", action="store_true")
    args = parser.parse_args()
    if args.once is not None:
        if args.once:
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.once])
        print(json.dumps(compile_once(args.models[0])))
        return
    compileall.compile_dir(str(Path(sterna.__file__).parent), quiet=1)
    rows = [measure(path, args.processors) for path in args.models]
    show("cold compile times", HEAD, rows, args.markdown)


if __name__ == "__main__":
    main()
