"""Operators on tensor expressions, under the names of the classic operator inventory (TOPI).

Layers (topi.nn) and reductions consist of the stages that schedules of users expect; the rest are
the operators of graphs, computed on tensors.
"""

from sterna.support.classic import classic_names
from sterna.topi import arm_cpu as arm_cpu
from sterna.topi import cuda as cuda
from sterna.topi import generic as generic
from sterna.topi import gpu as gpu
from sterna.topi import image as image
from sterna.topi import nn as nn
from sterna.topi import tag as tag
from sterna.topi import testing as testing
from sterna.topi import utils as utils
from sterna.topi import vision as vision
from sterna.topi import x86 as x86
from sterna.topi.elementwise import *  # noqa: F403  (all of its names are topi's)
from sterna.topi.products import matmul as matmul
from sterna.topi.products import tensordot as tensordot
from sterna.topi.reduction import all as all
from sterna.topi.reduction import any as any
from sterna.topi.reduction import argmax as argmax
from sterna.topi.reduction import argmin as argmin
from sterna.topi.reduction import max as max
from sterna.topi.reduction import min as min
from sterna.topi.reduction import prod as prod
from sterna.topi.reduction import sum as sum
from sterna.topi.transform import *  # noqa: F403

__getattr__ = classic_names(__name__)
