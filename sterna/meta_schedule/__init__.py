"""The classic names of meta_schedule, over the tuner of `sterna.tune`.

What users say about cost models, search strategies and spaces is checked and then left to the one
engine: the space of a kernel is what its schedule asks, and the search starts from the analytic
answer.
"""

from sterna.meta_schedule import (
    builder,
    cost_model,
    database,
    measure_callback,
    relay_integration,
    runner,
    search_strategy,
    space_generator,
    task_scheduler,
    tir_integration,
    utils,
)
from sterna.meta_schedule.builder import Builder, LocalBuilder
from sterna.meta_schedule.config import TuneConfig
from sterna.meta_schedule.cost_model import CostModel
from sterna.meta_schedule.database import Database, JSONDatabase, MemoryDatabase, TuningRecord
from sterna.meta_schedule.measure_callback import MeasureCallback
from sterna.meta_schedule.older import (
    ApplyHistoryBest,
    extract_task_from_relay,
    tune_extracted_tasks,
    tune_relay,
    tune_te,
    tune_tvm,
)
from sterna.meta_schedule.profiler import Profiler
from sterna.meta_schedule.relay_integration import is_meta_schedule_enabled
from sterna.meta_schedule.runner import EvaluatorConfig, LocalRunner, RPCConfig, RPCRunner, Runner
from sterna.meta_schedule.search_strategy import MeasureCandidate, SearchStrategy
from sterna.meta_schedule.space_generator import SpaceGenerator
from sterna.meta_schedule.task_scheduler import TaskScheduler
from sterna.meta_schedule.tir_integration import compile_tir, tune_tir
from sterna.meta_schedule.tune import tune_tasks
from sterna.meta_schedule.utils import derived_object
from sterna.tune.network_tasks import ExtractedTask, TuneContext

__all__ = [
    "ApplyHistoryBest", "Builder", "CostModel", "Database", "EvaluatorConfig", "ExtractedTask",
    "JSONDatabase", "LocalBuilder", "LocalRunner", "MeasureCallback", "MeasureCandidate",
    "MemoryDatabase", "Profiler", "RPCConfig", "RPCRunner", "Runner", "SearchStrategy",
    "SpaceGenerator", "TaskScheduler", "TuneConfig", "TuneContext", "TuningRecord", "builder",
    "compile_tir", "cost_model", "database", "derived_object", "extract_task_from_relay",
    "is_meta_schedule_enabled", "measure_callback", "relay_integration", "runner",
    "search_strategy", "space_generator", "task_scheduler", "tir_integration",
    "tune_extracted_tasks", "tune_relay", "tune_tasks", "tune_te", "tune_tir", "tune_tvm", "utils",
]
