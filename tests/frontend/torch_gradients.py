"""Gradients of PyTorch's sample calls in the training path of torch.compile(backend="sterna").

    python -m tests.frontend.torch_gradients [--only add exp] [--samples 1] [--compiled]

Every operator of OpInfo that has gradients is run by eager PyTorch and by the backend without its
fallback; forward and backward graphs are run by the operators' references, or with --compiled by
their kernels. The gradients of the sum of all results must be equal to those of PyTorch, or to
those of float64 or no further from them than PyTorch's own, where these are less exact. Of
eigenvectors and singular vectors that is summed which OpInfo says is the same for any sign.
"""

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sterna.contrib import torch_compile
from sterna.frontend.format import ImportOptions
from sterna.frontend.torch.load_model import import_program
from sterna.frontend.torch.program import Program
from sterna.frontend.torch.tensors import array_of_tensor
from sterna.relay.interpreter import interpret
from sterna.relay.op import find
from sterna.support.errors import OpNotImplemented
from tests.frontend.torch_opinfo import (
    BROKEN,
    RIGHT,
    SLOW,
    TORCH,
    WRONG,
    Outcome,
    SampleCall,
    Sweep,
    limited,
    name_of,
    operators,
    part_of,
    reason_of,
    short,
    spread,
)


def by_references(program: Program, options: torch_compile.Options) -> Any:
    """A graph that the operators' references run, in place of a compiled one."""
    if not any(output.value is not None for output in program.outputs):
        return None
    module, _ = import_program(program, ImportOptions())

    def run(*tensors: Any) -> Any:
        arrays = [array_of_tensor(torch.as_tensor(each), "a tensor") for each in tensors]
        with np.errstate(all="ignore"):
            made = interpret(module["main"], *arrays)
        every = made if isinstance(made, tuple | list) else [made]
        return [np.array(each, order="C") for each in every]

    return run


def gradients(call: Any, given: Sequence[Any], process: Any) -> list[Any]:
    """The gradients of the sum of all results, by input that has one."""
    inputs = [
        each.detach().clone().requires_grad_(each.requires_grad) for each in given
    ]
    leaves = torch.utils._pytree.tree_flatten(process(call(*inputs)))[0]
    counted = [
        each for each in leaves
        if isinstance(each, torch.Tensor) and each.requires_grad and each.is_floating_point()
    ]
    if not counted:
        return []
    sum(each.sum() for each in counted).backward()
    return [each.grad for each in inputs if each.requires_grad]


def _in_float64(call: Any, given: Sequence[Any], process: Any) -> list[Any]:
    """The gradients for numbers of float64, rounded."""
    wide = [
        each.detach().double().requires_grad_(each.requires_grad)
        if each.dtype == torch.float32 else each for each in given
    ]
    found = gradients(call, wide, process)
    return [each if each is None else each.float() for each in found]


def run_operator(op: Any, samples: int) -> Outcome | None:
    """The first thing that goes wrong; None for an operator without gradients."""
    torch.manual_seed(0)
    calls = list(op.sample_inputs("cpu", torch.float32, requires_grad=True))
    seen = False
    for sample in spread(calls, samples):
        torch._dynamo.reset()
        call = SampleCall(op.op, sample)
        given = call.tensors()
        try:
            wanted = gradients(call, given, sample.output_process_fn_grad)
        except Exception as error:
            return Outcome(name_of(op), TORCH, short(error))
        if not wanted:
            continue
        seen = True
        reason, detail = _outcome(call, given, wanted, sample.output_process_fn_grad)
        if reason != RIGHT:
            return Outcome(name_of(op), reason, detail)
    return Outcome(name_of(op), RIGHT) if seen else None


def _outcome(
    call: Any, given: Sequence[Any], wanted: Sequence[Any], process: Any
) -> tuple[str, str]:
    options = {"fallback": False, "opt_level": 0}
    fast = torch.compile(call, backend="sterna", options=options, fullgraph=True)
    try:
        found = gradients(fast, given, process)
    except TimeoutError:
        return SLOW, ""
    except OpNotImplemented as error:
        return reason_of(str(error))
    except Exception as error:
        text = str(error)
        refused = text.partition("OpNotImplemented: ")[2]
        if refused or "have no converter" in text:
            return reason_of(refused or text)
        is_ours = "sterna" in text or "node '" in text
        return (BROKEN if is_ours else TORCH), short(error)
    try:
        try:
            _expect_close(found, wanted)
        except AssertionError:
            _expect_exact(found, wanted, _in_float64(call, given, process))
    except AssertionError as error:
        return WRONG, short(error)
    return RIGHT, ""


def _expect_close(found: Sequence[Any], wanted: Sequence[Any]) -> None:
    for have, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(have, want, equal_nan=True, check_stride=False)


def _expect_exact(
    found: Sequence[Any], wanted: Sequence[Any], exact: Sequence[Any]
) -> None:
    """Gradients are close to those of float64, or no further from them than PyTorch's own."""
    for have, own, true in zip(found, wanted, exact, strict=True):
        is_alike = isinstance(have, torch.Tensor) and have.shape == true.shape
        if not is_alike or not (have - true).abs().max() <= (own - true).abs().max():
            torch.testing.assert_close(have, true, equal_nan=True, check_stride=False)


def main(words: Sequence[str] | None = None) -> int:
    """Run what the command line names; 1 if a gradient is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--samples", type=int, default=1)
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--part", default="1/1", help="2/4: the second of four parts of them")
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args(words)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    find("add")
    if not given.compiled:
        torch_compile._build = by_references
    outcomes = []
    for op in part_of(operators(torch.float32), given.part):
        wanted = not given.only or name_of(op) in given.only or op.name in given.only
        if not wanted or not op.supports_autograd:
            continue
        made: Outcome | None
        try:
            with limited():
                made = run_operator(op, given.samples)
        except TimeoutError:
            made = Outcome(name_of(op), SLOW)
        if made is not None:
            outcomes.append(made)
            print(f"{made.name}\t{made.reason}\t{made.detail}", flush=True)
    counts = Counter(one.reason for one in outcomes)
    print("\n".join(f"{count:4} {reason}" for reason, count in counts.most_common()))
    if given.keep is not None:
        Sweep("gradients of float32", given.samples, given.compiled, outcomes).write(given.keep)
    return 1 if counts[WRONG] or counts[BROKEN] else 0


if __name__ == "__main__":
    sys.exit(main())
