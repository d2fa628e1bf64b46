"""From schedules to modules."""

from sterna.driver.build import build, lower
from sterna.driver.factory import GraphExecutorFactoryModule
from sterna.driver.operator_module import OperatorModule
from sterna.support.classic import classic_names

__all__ = ["GraphExecutorFactoryModule", "OperatorModule", "build", "lower"]

__getattr__ = classic_names(__name__)
