"""What is searched, with which limits: a workload or a layer of a network, for a target."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from sterna.auto_scheduler.compute_dag import ComputeDAG
from sterna.auto_scheduler.loop_state import State
from sterna.auto_scheduler.measure import get_task_input_buffer, register_task_input_buffer
from sterna.auto_scheduler.measure_record import PathLike, load_best_record
from sterna.auto_scheduler.search_policy import SketchPolicy
from sterna.auto_scheduler.tuning_options import TuningOptions
from sterna.auto_scheduler.workload_registry import make_workload_key
from sterna.autotvm.layers import LayerTask
from sterna.autotvm.template import NO_INPUTS
from sterna.driver import build
from sterna.target import Target
from sterna.te import Schedule, Tensor


@dataclass(frozen=True)
class HardwareParams:
    """What a search may take for granted about a machine; logs carry the numbers."""

    num_cores: int | None = None
    vector_unit_bytes: int | None = None
    cache_line_bytes: int | None = None
    max_shared_memory_per_block: int | None = None
    max_local_memory_per_block: int | None = None
    max_threads_per_block: int | None = None
    max_vthread_extent: int | None = None
    warp_size: int | None = None
    target: Any = None
    target_host: Any = None

    def numbers(self) -> list[int]:
        """As log lines hold them."""
        default = (os.cpu_count() or 1, 64, 64, 0, 0, 0, 0, 0)
        return [own if own is not None else default[place]
                for place, own in enumerate(astuple(self)[:8])]


class SearchTask:
    """A workload for a target."""

    layer: LayerTask | None = None
    """The layer of a network that it is, if it is one."""
    inputs: Mapping[str, Any] = NO_INPUTS
    """Arrays that it is measured with, by name; others are drawn at random."""

    def __init__(
        self,
        func: Callable[..., Sequence[Tensor]] | str | None = None,
        args: Sequence[Any] | None = None,
        compute_dag: ComputeDAG | None = None,
        workload_key: str | None = None,
        target: Any = None,
        target_host: Any = None,
        hardware_params: HardwareParams | None = None,
        layout_rewrite_option: Any = None,
        task_inputs: Mapping[str, Any] | Sequence[str] | None = None,
        task_inputs_overwrite: bool = False,
        task_inputs_save_to_file: bool = False,
        desc: str = "",
    ) -> None:
        if func is not None:
            workload_key = make_workload_key(func, args or ())
        elif compute_dag is not None and workload_key is None:
            workload_key = compute_dag.workload_key()
        if workload_key is None:
            raise ValueError("a task is made of func and args, a compute_dag or a workload_key")
        if target is None:
            raise ValueError('a task is searched for a target: target="llvm"')
        self.workload_key = workload_key
        self.compute_dag: Any = ComputeDAG(workload_key) if compute_dag is None else compute_dag
        wanted = Target(target)
        self.target = wanted if target_host is None else wanted.with_host(target_host)
        self.hardware_params = hardware_params or HardwareParams()
        self.desc = desc
        for name, array in task_inputs.items() if isinstance(task_inputs, Mapping) else ():
            register_task_input_buffer(
                workload_key, name, array, task_inputs_overwrite, task_inputs_save_to_file
            )
        self.task_input_names = list(task_inputs or ())
        names = {tensor.op.name for tensor in self.compute_dag.tensors}
        unknown = set(self.task_input_names) - names
        if unknown:
            raise ValueError(
                f"task_inputs: the workload has no tensor {min(unknown)}, only "
                f"{', '.join(sorted(names))}"
            )
        self.inputs = {
            name: get_task_input_buffer(workload_key, name) for name in self.task_input_names
        }

    @property
    def flop(self) -> float:
        """How many operations one run does."""
        return float(self.compute_dag.flop_ct)

    def tune(
        self, tuning_options: TuningOptions, search_policy: Any = None,
        adaptive_training: bool = False,
    ) -> None:
        """Search, and call back after each measurement."""
        policy = search_policy or SketchPolicy(self, verbose=tuning_options.verbose)
        if policy.task is not self:
            raise ValueError("the search policy is for another task")
        policy.search(tuning_options)

    def apply_best(
        self, log_file: PathLike, include_compatible: bool = False,
        layout_rewrite_option: Any = None,
    ) -> tuple[Schedule, list[Tensor]]:
        """The schedule of the fastest measurement of a log, and the tensors of its function."""
        return self._best(log_file).apply()

    def print_best(self, log_file: PathLike, print_mode: str = "schedule") -> str:
        """The fastest schedule of a log as calls of te, or the source of its GPU kernel."""
        state = self._best(log_file)
        if print_mode == "schedule":
            return "\n".join(state.lines())
        if print_mode != "cuda":
            raise ValueError(f"print_mode '{print_mode}' is neither schedule nor cuda")
        made: str = build(*state.apply(), target=self.target).imported_modules[0].get_source()
        return made

    def _best(self, log_file: PathLike) -> State:
        found, _ = load_best_record(log_file, self.workload_key, self.target)
        if found is None:
            raise RuntimeError(
                f"{log_file} has no valid schedule of {self.workload_key} for "
                f"{self.target.kind.name}; every measurement failed, or it is another task's log"
            )
        return State(self.compute_dag, found.state.transform_steps)

    def __repr__(self) -> str:
        return f"SearchTask({self.workload_key}, {self.target})"


class LayerSearchTask(SearchTask):
    """A layer of a network; it is timed inside of it, and built with it."""

    def __init__(self, layer: LayerTask, shown: str, desc: str) -> None:
        self.layer: LayerTask = layer
        self.desc = desc
        self.workload_key = make_layer_key(layer.scope)
        self.target = layer.target
        self.hardware_params = HardwareParams()
        self.compute_dag = shown

    @property
    def flop(self) -> float:
        return self.layer.flop

    def _best(self, log_file: PathLike) -> State:
        raise ValueError(
            f"{self.desc} has no schedule apart from its network; build that under "
            "auto_scheduler.ApplyHistoryBest(log_file)"
        )


def make_layer_key(scope: str) -> str:
    """The key of a layer."""
    return json.dumps(["layer", scope])


def create_task(func: Any, args: Sequence[Any], target: Any, **options: Any) -> SearchTask:
    """An older spelling of SearchTask(func, args, target=target)."""
    return SearchTask(func, args, target=target, **options)
