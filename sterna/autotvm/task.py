"""Tasks, by the names that programs know."""

from sterna.autotvm.layers import (
    LayerTask,
    extract_from_multiple_program,
    extract_from_program,
)
from sterna.autotvm.space import ConfigEntity, ConfigSpace
from sterna.autotvm.template import Task, create, get_config, template
from sterna.support.classic import classic_names

__all__ = [
    "ConfigEntity", "ConfigSpace", "LayerTask", "Task", "create",
    "extract_from_multiple_program", "extract_from_program",
    "get_config", "template",
]

__getattr__ = classic_names(__name__)
