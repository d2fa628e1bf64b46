"""Python's values as the compiler's own."""

import numpy as np

import sterna as tvm
from sterna import te


def test_values() -> None:
    assert isinstance(tvm.convert(3), tvm.tir.IntImm) and tvm.convert(3).value == 3
    assert tvm.convert(2.5).dtype == "float32" and tvm.convert(True).dtype == "bool"
    assert [int(part) for part in tvm.convert([1, 2])] == [1, 2]
    assert int(tvm.runtime.convert({"a": 4})["a"]) == 4
    assert tvm.convert("text") == "text"
    array, extent = tvm.nd.array(np.zeros(2, "float32")), te.var("n")
    assert tvm.convert(array) is array and tvm.convert(extent) is extent
    assert tvm.convert(lambda x: x + 1)(2) == 3
