"""The classic names of the auto-scheduler: workloads without templates, tasks, policies, logs.

A workload is a function that gives tensors. Its schedules are searched by the engine that AutoTVM's
tuners share; logs hold them as steps. The tasks of a network are its layers, whose schedules answer
the questions of `sterna.schedule.choose`.
"""

from sterna.auto_scheduler import (
    compute_dag,
    loop_state,
    measure,
    measure_record,
    relay_integration,
    search_policy,
    search_task,
    task_scheduler,
    workload_registry,
)
from sterna.auto_scheduler.compute_dag import ComputeDAG
from sterna.auto_scheduler.measure import (
    LocalBuilder,
    LocalRPCMeasureContext,
    LocalRunner,
    MeasureErrorNo,
    MeasureInput,
    MeasureResult,
    RPCRunner,
)
from sterna.auto_scheduler.measure_record import (
    RecordReader,
    RecordToFile,
    load_best_record,
    load_records,
    save_records,
)
from sterna.auto_scheduler.relay_integration import (
    ApplyHistoryBest,
    ApplyHistoryBestOrSample,
    extract_tasks,
    is_auto_scheduler_enabled,
)
from sterna.auto_scheduler.search_policy import (
    EmptyPolicy,
    PreloadMeasuredStates,
    RandomModel,
    SketchPolicy,
    XGBModel,
)
from sterna.auto_scheduler.search_task import (
    HardwareParams,
    SearchTask,
    create_task,
)
from sterna.auto_scheduler.sketch_rules import PreloadCustomSketchRule
from sterna.auto_scheduler.task_scheduler import (
    LogEstimatedLatency,
    PrintTableInfo,
    TaskScheduler,
    TaskSchedulerCallback,
)
from sterna.auto_scheduler.tuning_options import TuningOptions
from sterna.auto_scheduler.workload_registry import make_workload_key, register_workload
from sterna.support.classic import classic_names

__all__ = [
    "ApplyHistoryBest", "ApplyHistoryBestOrSample", "ComputeDAG", "EmptyPolicy", "HardwareParams",
    "LocalBuilder", "LocalRPCMeasureContext", "LocalRunner", "LogEstimatedLatency",
    "MeasureErrorNo", "MeasureInput", "MeasureResult", "PreloadCustomSketchRule",
    "PreloadMeasuredStates", "PrintTableInfo", "RPCRunner", "RandomModel", "RecordReader",
    "RecordToFile", "SearchTask", "SketchPolicy", "TaskScheduler", "TaskSchedulerCallback",
    "TuningOptions", "XGBModel", "compute_dag", "create_task", "extract_tasks",
    "is_auto_scheduler_enabled", "load_best_record", "load_records", "loop_state",
    "make_workload_key", "measure", "measure_record", "register_workload", "relay_integration",
    "save_records", "search_policy", "search_task", "task_scheduler", "workload_registry",
]

__getattr__ = classic_names(__name__)
