"""From schedules to modules."""

from sterna.driver.build import build, lower
from sterna.driver.operator_module import OperatorModule

__all__ = ["OperatorModule", "build", "lower"]
