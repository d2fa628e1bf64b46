"""Runs a model on numbers from standard input and writes what it gives to standard output:

    pip install wasmtime
    python run_model.py model.wasm < input.bin > output.bin
"""

import sys

from wasmtime import Engine, Instance, Module, Store

store = Store(Engine())
model = Instance(store, Module.from_file(store.engine, sys.argv[1]), []).exports(store)
memory = model["memory"]


def call(name: str, *numbers: int) -> int:
    """Call a function of the module; a negative number means that it failed."""
    result = model[name](store, *numbers)
    if result is not None and result < 0:
        at = model["last_error"](store)
        raise RuntimeError(memory.read(store, at, at + 1000).split(b"\0")[0].decode())
    return result


call("_initialize")
call("input_count")
memory.write(store, sys.stdin.buffer.read(call("input_bytes", 0)), call("input_data", 0))
call("run")
at = call("output_data", 0)
sys.stdout.buffer.write(memory.read(store, at, at + call("output_bytes", 0)))
