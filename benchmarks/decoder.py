"""Tokens per second of a decoder with a KV cache, beside ONNX Runtime on the same file, in turns.

    python benchmarks/decoder.py [--steps 64] [--past 128] [--threads 2]

Sterna keeps the cache inside the model (Session); ONNX Runtime keeps it by IOBinding's OrtValues.
"""

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np


def main() -> None:
    """Print the tokens per second of both, and their ratio."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=64)
    options.add_argument("--past", type=int, default=128)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--rounds", type=int, default=5)
    given = options.parse_args()
    os.environ.setdefault("STERNA_NUM_THREADS", str(given.threads))
    import onnxruntime
    from decoder_model import decoder

    import sterna

    proto = decoder()
    names = {"present_k": "past_k", "present_v": "past_v"}
    kept = proto.graph.input[1].type.tensor_type.shape.dim
    layers, heads, width = (kept[place].dim_value for place in (0, 1, 3))
    cache = np.random.default_rng(0).standard_normal((layers, heads, given.past, width))
    initial = dict.fromkeys(names.values(), cache.astype("float32"))
    model: Any = sterna.compile(proto)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = given.threads
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), settings, providers=["CPUExecutionProvider"]
    )

    def ours() -> Callable[[Any], Any]:
        return model.session(names, initial)  # type: ignore[no-any-return]

    def theirs() -> Callable[[Any], Any]:
        value = onnxruntime.OrtValue.ortvalue_from_numpy
        state = {name: value(array) for name, array in initial.items()}

        def step(ids: Any) -> Any:
            nonlocal state
            logits, *caches = session.run_with_ort_values(
                None, {"ids": value(ids), **state}
            )
            state = dict(zip(names.values(), caches, strict=True))
            return logits.numpy()

        return step

    best: dict[str, float] = {}
    ends: dict[str, Any] = {}
    for _ in range(given.rounds):
        for name, make in (("sterna", ours), ("onnxruntime", theirs)):
            took, ends[name] = _decode(make(), given.steps)
            best[name] = min(best.get(name, took), took)
    np.testing.assert_allclose(ends["sterna"], ends["onnxruntime"], rtol=1e-3, atol=1e-3)
    for name, took in best.items():
        print(f"{name:12} {given.steps / took:8.0f} tokens per second")
    print(f"ratio        {best['onnxruntime'] / best['sterna']:8.2f}")


def _decode(step: Callable[[Any], Any], steps: int) -> tuple[float, Any]:
    """How long greedy decoding takes, and the last logits."""
    ids = np.array([[1]], "int64")
    start = time.perf_counter()
    for _ in range(steps):
        logits = step(ids)
        ids = np.argmax(logits[:, -1:], axis=-1).astype("int64")
    return time.perf_counter() - start, logits


if __name__ == "__main__":
    main()
