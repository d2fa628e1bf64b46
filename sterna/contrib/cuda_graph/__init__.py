"""Executors whose runs are CUDA graphs."""

from sterna.contrib.cuda_graph import cuda_graph_executor
from sterna.support.classic import classic_names

__all__ = ["cuda_graph_executor"]

__getattr__ = classic_names(__name__)
