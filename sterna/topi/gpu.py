"""Schedules by the names of topi.gpu; where no target is current they are made for opencl."""

from sterna.topi.schedules import scheduler

__getattr__ = scheduler("opencl")
