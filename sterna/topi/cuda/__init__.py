"""Schedules by the names of topi.cuda; where no target is current they are made for cuda."""

from sterna.topi.schedules import scheduler

__getattr__ = scheduler("cuda")
