"""The classic names of AutoTVM: templates with knobs, tasks, tuners, logs.

Templates are the user's own schedules of tensor expressions. The tasks of a network are its layers,
whose knobs are the questions that `sterna.schedule.choose` answers.
"""

from sterna.autotvm import (
    callback,
    dispatch,
    env,
    graph_tuner,
    layers,
    measure,
    record,
    space,
    task,
    tophub,
    tuner,
)
from sterna.autotvm.dispatch import FallbackContext, apply_graph_best, apply_history_best
from sterna.autotvm.env import GLOBAL_SCOPE
from sterna.autotvm.layers import extract_from_program
from sterna.autotvm.measure import (
    LocalBuilder,
    LocalRunner,
    MeasureErrorNo,
    MeasureInput,
    MeasureResult,
    RPCRunner,
    measure_option,
)
from sterna.autotvm.space import ConfigEntity, ConfigSpace, InstantiationError
from sterna.autotvm.template import (
    apply_fixed_config,
    create,
    get_config,
    register_topi_compute,
    register_topi_schedule,
    template,
)
from sterna.autotvm.tuner import (
    DropletTuner,
    GATuner,
    GridSearchTuner,
    RandomTuner,
    XGBTuner,
)

__all__ = [
    "ConfigEntity", "ConfigSpace", "DropletTuner", "FallbackContext", "GATuner", "GLOBAL_SCOPE",
    "GridSearchTuner", "InstantiationError", "LocalBuilder", "LocalRunner", "MeasureErrorNo",
    "MeasureInput", "MeasureResult", "RPCRunner", "RandomTuner", "XGBTuner", "apply_fixed_config",
    "apply_graph_best", "apply_history_best", "callback", "create", "dispatch", "env",
    "extract_from_program", "get_config", "graph_tuner", "layers", "measure", "measure_option",
    "record", "register_topi_compute", "register_topi_schedule", "space", "task", "template",
    "tophub", "tuner",
]
