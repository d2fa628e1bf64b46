"""PyTorch's own descriptions of its operators, with sample calls, exported, imported and run.

    python -m tests.frontend.torch_opinfo [--only NAME ...] [--samples 4] [--page FILE] [--compiled]

Every sample call becomes a module whose inputs are the call's tensors; it is exported by
torch.export, imported, and run by the operators' references, or compiled with --compiled. Results
are held against the eager ones with the tolerances of torch.testing. --page writes the list of what
passes and what does not, by reason. It needs the package expecttest, as PyTorch's own tests do.
"""

import argparse
import re
import signal
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import sterna
from sterna.frontend.format import ImportOptions
from sterna.frontend.torch.load_model import load
from sterna.relay.interpreter import interpret
from sterna.relay.op import find
from sterna.support.errors import OpNotImplemented

SECONDS = 60

RIGHT, WRONG, BROKEN, LACKING = "right", "results differ", "other errors", "no converter"
TORCH, COMPLEX, RANDOM = "torch cannot export it", "complex numbers", "random numbers"
DATA = "data decides about shapes"
SLOW = f"more than {SECONDS} s"

HEAD = """\
# PyTorch's sample calls of operators

PyTorch {version} describes {count} operators that take `{dtype}` on the CPU, with sample calls
(OpInfo). Up to {samples} of each were exported by `torch.export`, imported and run by
{how}, and held against eager results with the tolerances of
`torch.testing`: of {right} operators all these calls are right. This page is written by
`python -m tests.frontend.torch_opinfo --page docs/pytorch_coverage.md`.
"""


@dataclass(frozen=True)
class Outcome:
    """What came of an operator's sample calls."""

    name: str
    reason: str
    detail: str = ""


class SampleCall(torch.nn.Module):
    """One sample call; its tensors are inputs, all else is as it is."""

    def __init__(self, function: Any, sample: Any) -> None:
        super().__init__()
        given = (sample.input, sample.args, sample.kwargs)
        self.function = function
        self.leaves, self.spec = torch.utils._pytree.tree_flatten(given)

    def tensors(self) -> tuple[Any, ...]:
        """The inputs."""
        return tuple(each for each in self.leaves if isinstance(each, torch.Tensor))

    def forward(self, *tensors: Any) -> Any:
        rest = iter(tensors)
        leaves = [next(rest) if isinstance(e, torch.Tensor) else e for e in self.leaves]
        first, args, kwargs = torch.utils._pytree.tree_unflatten(leaves, self.spec)
        return self.function(first, *args, **kwargs)


def operators(dtype: Any) -> list[Any]:
    """The descriptions of operators that take a type of elements."""
    from torch.testing._internal.common_methods_invocations import op_db

    return [op for op in op_db if dtype in op.dtypes]


def name_of(op: Any) -> str:
    """The name of an operator, with that of its variant."""
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


def run_operator(op: Any, dtype: Any, samples: int, compiled: bool) -> Outcome:
    """The first thing that goes wrong with sample calls that are spread over all of them."""
    name = name_of(op)
    torch.manual_seed(0)
    calls = list(op.sample_inputs("cpu", dtype, requires_grad=False))
    for sample in _spread(calls, samples):
        reason, detail = _limited(op, sample, compiled)
        if reason != RIGHT:
            return Outcome(name, reason, detail)
    return Outcome(name, RIGHT)


def _spread(calls: Sequence[Any], count: int) -> Iterator[Any]:
    step = max(1, len(calls) / count)
    places = sorted({int(place * step) for place in range(min(count, len(calls)))})
    return (calls[place] for place in places)


def _limited(op: Any, sample: Any, compiled: bool) -> tuple[str, str]:
    def stop(*about: Any) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        return _outcome(op, sample, compiled)
    except TimeoutError:
        return SLOW, ""
    finally:
        signal.alarm(0)


def _outcome(op: Any, sample: Any, compiled: bool) -> tuple[str, str]:
    call = SampleCall(op.op, sample)
    given = call.tensors()
    try:
        with torch.no_grad():
            wanted = _flat(call(*(each.clone() for each in given)))
            exported = torch.export.export(call, given)
    except TimeoutError:
        raise
    except Exception as error:
        return TORCH, _short(error)
    if any(each.is_complex() for each in wanted if isinstance(each, torch.Tensor)):
        return COMPLEX, ""
    try:
        found = _run(exported, given, compiled)
    except OpNotImplemented as error:
        return _lacking(str(error))
    except TimeoutError:
        raise
    except Exception as error:
        return BROKEN, _short(error)
    try:
        for have, want in zip(found[: len(wanted)], wanted, strict=True):  # state comes behind
            _expect_close(have, want)
    except (AssertionError, ValueError) as error:
        return WRONG, _short(error)
    return RIGHT, ""


def _run(exported: Any, given: Sequence[Any], compiled: bool) -> list[Any]:
    arrays = [each.detach().numpy() for each in given]
    if compiled:
        made = sterna.compile(exported, opt_level=0)(*arrays)
    else:
        module, _ = load(exported, ImportOptions())
        with np.errstate(all="ignore"):
            made = interpret(module["main"], *arrays)
    return list(made) if isinstance(made, tuple | list) else [made]


def _expect_close(have: Any, want: Any) -> None:
    wanted = want.detach() if isinstance(want, torch.Tensor) else torch.tensor(want)
    array = torch.from_numpy(np.array(have))
    torch.testing.assert_close(array, wanted, equal_nan=True, check_stride=False)


def _flat(made: Any) -> list[Any]:
    leaves, _ = torch.utils._pytree.tree_flatten(made)
    return [each for each in leaves if each is not None]


def _lacking(text: str) -> tuple[str, str]:
    """Why something has no converter, and which operators."""
    if "complex" in text:
        return COMPLEX, ""
    if "data decides" in text:
        return DATA, ""
    if "random" in text:
        return RANDOM, ""
    found = re.findall(r"^  (\S+?):(?: ([^:]*):)? ", text, re.MULTILINE)
    return LACKING, ", ".join(f"{a} ({b})" if b else a for a, b in found) or text.split("\n")[0]


def _short(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    text = " ".join(lines[:6])
    return f"{type(error).__name__}: {re.sub(r' at /[^ ]*', '', text)[:220]}"


# ---- the page ----


def page(outcomes: Sequence[Outcome], dtype: str, samples: int, compiled: bool) -> str:
    """The list by reason."""
    right = [one for one in outcomes if one.reason == RIGHT]
    how = "compiled code" if compiled else "the operators' references in NumPy"
    parts = [HEAD.format(
        version=torch.__version__.partition("+")[0], count=len(outcomes), dtype=dtype,
        samples=samples, how=how, right=len(right),
    )]
    others = Counter(one.reason for one in outcomes if one.reason != RIGHT)
    for reason, count in others.most_common():
        parts.append(f"\n## {count}: {reason}\n")
        for one in outcomes:
            if one.reason == reason:
                detail = f": {one.detail}" if one.detail and reason == LACKING else ""
                parts.append(f"- `{one.name}`{detail}")
    parts.append(f"\n## {len(right)}: right\n")
    parts.append(", ".join(f"`{one.name}`" for one in right))
    return "\n".join(parts) + "\n"


def main(words: Sequence[str] | None = None) -> int:
    """Run what the command line names; 1 if a result is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--page", type=Path)
    given = parser.parse_args(words)
    dtype = getattr(torch, given.dtype)
    outcomes = []
    warnings.simplefilter("ignore")
    find("add")  # loads the operators, which is no part of a call's time
    for op in operators(dtype):
        if given.only and not any(name in (name_of(op), op.name) for name in given.only):
            continue
        outcomes.append(run_operator(op, dtype, given.samples, given.compiled))
        last = outcomes[-1]
        print(f"{last.name}\t{last.reason}\t{last.detail}", flush=True)
    counts = Counter(one.reason for one in outcomes)
    print("\n".join(f"{count:4} {reason}" for reason, count in counts.most_common()))
    if given.page is not None:
        given.page.write_text(page(outcomes, given.dtype, given.samples, given.compiled))
    return 1 if counts[WRONG] or counts[BROKEN] else 0


if __name__ == "__main__":
    sys.exit(main())
