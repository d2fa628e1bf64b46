"""Kernels of every class of schedules under Oclgrind, which sees races and wrong addresses."""

import subprocess
import sys
from pathlib import Path

from tests.support import ROOT, clean_environment, require_program

PROGRAM = """
import numpy as np
import sterna as tvm
from sterna import relay
from tests.gpu.kernels import EXAMPLES

for make in EXAMPLES.values():
    make().check_on("opencl")
x = relay.var("x", shape=(6, 40))
w = relay.var("w", shape=(8, 40))
products, rows = relay.nn.relu(relay.nn.dense(x, w)), relay.nn.softmax(x)
outs = relay.Tuple([products, rows, relay.argsort(x, axis=1, dtype="int32"), relay.sum(x)])
built = relay.build(tvm.IRModule.from_expr(relay.Function([x, w], outs)), "opencl")
executor = tvm.contrib.graph_executor.GraphModule(built["default"](tvm.opencl()))
rng = np.random.default_rng(0)
a, b = (rng.standard_normal((rows, 40)).astype("float32") for rows in (6, 8))
executor.set_input("x", a)
executor.set_input("w", b)
executor.run()
made = executor.get_output(0).numpy()
np.testing.assert_allclose(made, np.maximum(a @ b.T, 0), rtol=1e-4, atol=1e-4)
np.testing.assert_array_equal(executor.get_output(2).numpy(), a.argsort(1))
print("all is well")
"""


def test_no_kernel_races_or_leaves_its_memory(tmp_path: Path) -> None:
    program = Path(require_program("oclgrind")).resolve()
    folders = (program.parent.parent / "lib" / "oclgrind", Path("/usr/lib/oclgrind"))
    library = next(path / "liboclgrind-rt-icd.so" for path in folders if path.exists())
    (tmp_path / "oclgrind.icd").write_text(f"{library}\n")
    environment = clean_environment(
        OCL_ICD_VENDORS=str(tmp_path), OCLGRIND_DATA_RACES="1", OCLGRIND_UNINITIALIZED="0"
    )
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, env=environment, capture_output=True, text=True,
        timeout=600, check=False,
    )
    assert done.returncode == 0 and "all is well" in done.stdout, done.stdout + done.stderr
    for word in ("race", "Invalid", "divergence", "error"):
        assert word not in done.stderr, done.stderr
