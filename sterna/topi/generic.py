"""Schedules by the names of topi.generic; where no target is current they are made for llvm."""

from sterna.topi.schedules import scheduler

__getattr__ = scheduler("llvm")
