"""Run another benchmark as on a processor that has AVX2 but not AVX-512, all engines alike.

    python benchmarks/without_avx512.py SCRIPT [ARGUMENTS...]

For x86-64 Linux whose processor lets CPUID fault (`cpuid_fault` among the flags in /proc/cpuinfo).
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

FLAG = "cpuid_fault"
SOURCE = Path(__file__).with_suffix(".c")


def main() -> int:
    """Compile the handler, and run the script with it in every process."""
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    told = Path("/proc/cpuinfo")
    if not told.is_file() or FLAG not in told.read_text().split():
        print(f"this processor does not let CPUID fault: no {FLAG} in /proc/cpuinfo",
              file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "without_avx512.so"
        compiler = os.environ.get("CC", "cc")
        build = [compiler, "-O2", "-shared", "-fPIC", str(SOURCE), "-o", str(library)]
        subprocess.run(build, check=True)
        environment = {**os.environ, "LD_PRELOAD": str(library)}
        return subprocess.run([sys.executable, *sys.argv[1:]], env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
