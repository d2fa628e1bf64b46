"""From schedules to modules."""

from sterna.driver.build import build, lower
from sterna.driver.factory import GraphExecutorFactoryModule
from sterna.driver.operator_module import OperatorModule

__all__ = ["GraphExecutorFactoryModule", "OperatorModule", "build", "lower"]
