"""PyTorch's own descriptions of its operators, with sample calls, exported, imported and run.

    python -m tests.frontend.torch_opinfo [--only NAME ...] [--samples 4] [--page FILE] [--compiled]

Every sample call becomes a module whose inputs are the call's tensors; it is exported by
torch.export, imported, and run by the operators' references, or compiled with --compiled. Results
are held against the eager ones with the tolerances of torch.testing. --page writes the list of what
passes and what does not, by reason. It needs the package expecttest, as PyTorch's own tests do.
"""

import argparse
import json
import re
import signal
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import sterna
from sterna.frontend.format import ImportOptions
from sterna.frontend.torch.complex_pairs import in_parts
from sterna.frontend.torch.load_model import load
from sterna.frontend.torch.tensors import array_of_tensor
from sterna.relay.interpreter import interpret
from sterna.relay.op import find
from sterna.support.errors import OpNotImplemented
from tests.frontend.torch_databases import DATABASES, described

SECONDS = 60

RIGHT, WRONG, BROKEN, LACKING = "right", "results differ", "other errors", "no converter"
TORCH, COMPLEX, RANDOM = "torch cannot export it", "complex numbers", "random numbers"
DATA = "data decides about shapes"
# Operators that give memory as it is: nothing is known but its shape and type.
WITHOUT_VALUES = frozenset({
    "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided",
})
# Types that float64 is more exact than.
NARROW = (torch.float32, torch.float16, torch.bfloat16)
# Operators that say where a number stands: of equal ones it may be any.
WITH_PLACES = frozenset({"topk", "kthvalue", "median", "nanmedian", "mode", "sort", "msort"})
SLOW = f"more than {SECONDS} s"

HEAD = """\
# PyTorch's sample calls of operators

PyTorch {version} describes {count} operators that take `{dtype}` on the CPU, with sample calls
(OpInfo). Up to {samples} of each were exported by `torch.export`, imported and run by
{how}, and held against eager results with the tolerances of
`torch.testing`, or against those of float64 where PyTorch's own are less exact: of {right}
operators all these calls are right. Of `empty` and its kin shapes and types are compared, of
eigenvectors and singular vectors what OpInfo says is the same for any sign.
`python -m tests.frontend.torch_opinfo --dtype float32 --keep FOLDER` runs them, with
`--of modules` and `--of "control flow"` PyTorch's samples of these; `python -m
tests.frontend.torch_gradients --keep FOLDER` runs gradients by the training path of torch.compile.
`--part 2/8` runs the second of eight parts, which is kept beside the others. With
`--page docs/pytorch_coverage.md` the former writes this page of what was kept.
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
    return described("operators", dtype)


def name_of(op: Any) -> str:
    """The name of an operator, with that of its variant."""
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


def run_operator(op: Any, dtype: Any, samples: int, compiled: bool) -> Outcome:
    """The first thing that goes wrong with sample calls that are spread over all of them."""
    name = name_of(op)
    torch.manual_seed(0)
    calls = list(op.sample_inputs("cpu", dtype, requires_grad=False))
    for sample in spread(calls, samples):
        reason, detail = _limited(op, sample, compiled)
        if reason != RIGHT:
            return Outcome(name, reason, detail)
    return Outcome(name, RIGHT)


def spread(calls: Sequence[Any], count: int) -> Iterator[Any]:
    """So many calls, from all over the list."""
    step = max(1, len(calls) / count)
    places = sorted({int(place * step) for place in range(min(count, len(calls)))})
    return (calls[place] for place in places)


def _limited(op: Any, sample: Any, compiled: bool) -> tuple[str, str]:
    try:
        with limited():
            return _outcome(op, sample, compiled)
    except TimeoutError:
        return SLOW, ""


@contextmanager
def limited() -> Iterator[None]:
    """TimeoutError after so many seconds of the processor."""

    def stop(*about: Any) -> None:
        raise TimeoutError

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _outcome(op: Any, sample: Any, compiled: bool) -> tuple[str, str]:
    call = SampleCall(getattr(sample, "function", op.op), sample)
    given = call.tensors()
    try:
        with torch.no_grad():
            made = call(*(each.clone() for each in given))
            wanted = _flat(made)
            exported = torch.export.export(call, given)
    except TimeoutError:
        raise
    except Exception as error:
        return TORCH, short(error)
    try:
        found = _run(exported, given, compiled)
    except OpNotImplemented as error:
        return reason_of(str(error))
    except TimeoutError:
        raise
    except Exception as error:
        return BROKEN, short(error)
    try:
        tensors = list(map(_tensor, found[: len(wanted)], wanted))  # state comes behind
        try:
            _expect_results(op, sample, made, tensors)
        except AssertionError:
            _expect_results(op, sample, _in_float64(call, given, made), tensors)
    except (AssertionError, TypeError, ValueError, RuntimeError) as error:
        return WRONG, short(error)
    return RIGHT, ""


def _run(exported: Any, given: Sequence[Any], compiled: bool) -> list[Any]:
    arrays = [_array(each) for each in given]
    if compiled:
        made = sterna.compile(exported, opt_level=0)(*arrays)
    else:
        module, _ = load(exported, ImportOptions())
        with np.errstate(all="ignore"):
            made = interpret(module["main"], *arrays)
    return list(made) if isinstance(made, tuple | list) else [made]


def _array(tensor: Any) -> Any:
    """A tensor's elements; of complex ones both parts along a last axis."""
    array = array_of_tensor(tensor, "a sample")
    return in_parts(array) if array.dtype.kind == "c" else array


def _tensor(have: Any, want: Any) -> Any:
    """A result as a tensor; complex ones come with their two parts along a last axis."""
    array = np.asarray(have)
    if str(array.dtype) == "bfloat16":
        return torch.from_numpy(array.astype("float32")).bfloat16()
    made = torch.from_numpy(np.array(array, order="C")).clone(memory_format=torch.contiguous_format)
    return torch.view_as_complex(made) if _is_complex(want) else made


def _is_complex(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_complex()


def _comparable(op: Any, sample: Any, made: Any, found: list[Any]) -> tuple[list[Any], list[Any]]:
    """What is told of results: of new memory its shape, of vectors what holds for any sign."""
    wanted = _flat(made)
    if op.name in WITHOUT_VALUES:
        return [torch.zeros_like(e) for e in found], [torch.zeros_like(e) for e in wanted]
    _, spec = torch.utils._pytree.tree_flatten(made)
    if len(found) != spec.num_leaves or len(wanted) != len(found):
        return found, wanted
    if op.name in WITH_PLACES and len(found) == 2 and sample.input.ndim:
        return [found[0], _at_places(op.name, sample, found[1])], [wanted[0], wanted[0]]
    if op.name == "argsort" and sample.input.ndim:
        return ([_at_places(op.name, sample, each) for each in found],
                [_at_places(op.name, sample, each) for each in wanted])
    own = torch.utils._pytree.tree_unflatten(found, spec)
    process = sample.output_process_fn_grad
    return _flat(process(own)), _flat(process(made))


def _at_places(name: str, sample: Any, places: Any) -> Any:
    """The numbers of the input at the places that a result names."""
    before = 1 if name in ("topk", "kthvalue") else 0
    axis = sample.kwargs.get("dim", sample.args[before] if len(sample.args) > before else -1)
    if places.ndim == sample.input.ndim:
        return torch.gather(sample.input, axis, places)
    return torch.gather(sample.input, axis, places.unsqueeze(axis)).squeeze(axis)


def _expect_results(op: Any, sample: Any, made: Any, found: list[Any]) -> None:
    for have, want in zip(*_comparable(op, sample, made, found), strict=True):
        _expect_close(have, want)


def _in_float64(call: SampleCall, given: Sequence[Any], made: Any) -> Any:
    """What PyTorch gives for numbers of float64, rounded: where its own are less exact."""
    wide = [each.double() if each.dtype in NARROW else each.clone() for each in given]
    with torch.no_grad():
        leaves, spec = torch.utils._pytree.tree_flatten(call(*wide))
    like = torch.utils._pytree.tree_flatten(made)[0]
    rounded = [
        each.to(own.dtype) if isinstance(each, torch.Tensor) and each.dtype == torch.float64
        else each
        for each, own in zip(leaves, like, strict=True)
    ]
    return torch.utils._pytree.tree_unflatten(rounded, spec)


def _expect_close(have: Any, want: Any) -> None:
    if not isinstance(want, torch.Tensor):  # a number, which has no type of elements
        have = have.item() if isinstance(have, torch.Tensor) else have
    wanted = want.detach() if isinstance(want, torch.Tensor) else torch.tensor(want)
    array = have if isinstance(have, torch.Tensor) else torch.tensor(have)
    torch.testing.assert_close(array, wanted, equal_nan=True, check_stride=False)


def _flat(made: Any) -> list[Any]:
    leaves, _ = torch.utils._pytree.tree_flatten(made)
    return [each for each in leaves if each is not None]


def reason_of(text: str) -> tuple[str, str]:
    """Why something has no converter, and which operators."""
    if "complex" in text:
        return COMPLEX, ""
    if "data decides" in text:
        return DATA, ""
    if "random" in text:
        return RANDOM, ""
    found = re.findall(r"^  (\S+?):(?: ([^:]*):)? ", text, re.MULTILINE)
    return LACKING, ", ".join(f"{a} ({b})" if b else a for a, b in found) or text.split("\n")[0]


def short(error: Exception) -> str:
    """The first lines of an error."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    text = " ".join(lines[:6])
    return f"{type(error).__name__}: {re.sub(r' at /[^ ]*', '', text)[:220]}"


# ---- the page ----


@dataclass(frozen=True)
class Sweep:
    """What came of all operators that take a type of elements."""

    dtype: str
    samples: int
    compiled: bool
    outcomes: list[Outcome]
    version: str = torch.__version__.partition("+")[0]

    def write(self, folder: Path) -> None:
        """Keep it in a folder, beside outcomes of other operators that were found in this way."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.dtype}.json"
        before = Sweep.read(path) if path.exists() else self
        is_alike = replace(before, outcomes=[]) == replace(self, outcomes=[])
        known = {one.name: one for one in before.outcomes} if is_alike else {}
        known.update({one.name: one for one in self.outcomes})
        merged = replace(self, outcomes=list(known.values()))
        path.write_text(json.dumps(asdict(merged), indent=1))

    @classmethod
    def read(cls, path: Path) -> "Sweep":
        """What was kept."""
        held = json.loads(path.read_text())
        return cls(**{**held, "outcomes": [Outcome(**one) for one in held["outcomes"]]})

    def count(self, reason: str) -> int:
        """How many operators there are of a reason."""
        return sum(one.reason == reason for one in self.outcomes)


def part_of(all_of_them: Sequence[Any], part: str) -> Sequence[Any]:
    """The second of four equal parts of a list, for 2/4."""
    number, count = map(int, part.split("/"))
    places = [len(all_of_them) * at // count for at in (number - 1, number)]
    return all_of_them[places[0] : places[1]]


def page(sweeps: Mapping[str, Sweep]) -> str:
    """The list of float32 by reason, and what is not right of the other types."""
    sweep = sweeps["float32"]
    outcomes = sweep.outcomes
    right = [one for one in outcomes if one.reason == RIGHT]
    how = "compiled code" if sweep.compiled else "the operators' references in NumPy"
    parts = [HEAD.format(
        version=sweep.version, count=len(outcomes), dtype=sweep.dtype,
        samples=sweep.samples, how=how, right=len(right),
    ), *_counts(sweeps.values())]
    others = Counter(one.reason for one in outcomes if one.reason != RIGHT)
    for reason, count in others.most_common():
        parts.append(f"\n## {count}: {reason}\n")
        parts += [f"- {_told(one)}" for one in outcomes if one.reason == reason]
    parts.append(f"\n## {len(right)}: right\n")
    parts.append(", ".join(f"`{one.name}`" for one in right))
    for other in sweeps.values():
        if other is not sweep:
            parts += _listed(other)
    return "\n".join(parts) + "\n"


def _told(one: Outcome) -> str:
    """Its name, as code but for classes of PyTorch's, and what it lacks."""
    name = f"`{one.name}`" if one.name.islower() or not one.name.startswith("nn.") else one.name
    return name + (f": {one.detail}" if one.detail and one.reason == LACKING else "")


def _listed(sweep: Sweep) -> list[str]:
    """What is not right of a sweep, by reason; all else is."""
    reasons = Counter(one.reason for one in sweep.outcomes if one.reason != RIGHT)
    lines = [
        f"- {reason}: " + ", ".join(_told(one) for one in sweep.outcomes if one.reason == reason)
        for reason, _ in reasons.most_common()
    ]
    again = [_told(one) for one in sweep.outcomes if one.reason == RIGHT and one.detail]
    if again:
        lines.append(f"- right when run again after the sweep: {', '.join(again)}")
    return [f"\n## What is not right of {sweep.dtype}\n", *(lines or ["Nothing."])]


def _counts(sweeps: Iterable[Sweep]) -> list[str]:
    """A table of how many operators are right, by type of elements."""
    reasons = [RIGHT, WRONG, BROKEN, LACKING, TORCH, COMPLEX, RANDOM, DATA, SLOW]
    rows = [
        f"| `{sweep.dtype}` | {sweep.version} | {sweep.samples} | {len(sweep.outcomes)} | "
        + " | ".join(str(sweep.count(reason)) for reason in reasons) + " |"
        for sweep in sweeps
    ]
    return [f"| elements | PyTorch | calls | operators | {' | '.join(reasons)} |",
            "|---" * (len(reasons) + 4) + "|", *rows]


def main(words: Sequence[str] | None = None) -> int:
    """Run what the command line names; 1 if a result is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--of", choices=DATABASES, default=DATABASES[0])
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--part", default="1/1", help="2/4: the second of four parts of them")
    parser.add_argument("--keep", type=Path, help="a folder where outcomes are kept by dtype")
    parser.add_argument("--page", type=Path, help="written of what is kept, without a run")
    given = parser.parse_args(words)
    if given.page is not None:
        kept = [Sweep.read(path) for path in sorted(given.keep.glob("*.json"))]
        given.page.write_text(page({sweep.dtype: sweep for sweep in kept}))
        return 0
    dtype = getattr(torch, given.dtype)
    outcomes = []
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    find("add")  # loads the operators, which is no part of a call's time
    for op in part_of(described(given.of, dtype), given.part):
        if given.only and not any(name in (name_of(op), op.name) for name in given.only):
            continue
        outcomes.append(run_operator(op, dtype, given.samples, given.compiled))
        last = outcomes[-1]
        print(f"{last.name}\t{last.reason}\t{last.detail}", flush=True)
    counts = Counter(one.reason for one in outcomes)
    print("\n".join(f"{count:4} {reason}" for reason, count in counts.most_common()))
    if given.keep is not None:
        what = given.dtype if given.of == "operators" else f"{given.dtype} {given.of}"
        Sweep(what, given.samples, given.compiled, outcomes).write(given.keep)
    return 1 if counts[WRONG] or counts[BROKEN] else 0


if __name__ == "__main__":
    sys.exit(main())
