"""Runs a network on a target that lies in a folder of its own."""

import sys
from pathlib import Path

import numpy as np

import sterna
from sterna import relay
from sterna.target.kind import register

# A package names its modules as entry points of the group sterna.targets instead.
sys.path.append(str(Path(__file__).with_name("targets")))
register("interpreted")

x, w = relay.var("x", shape=(2, 8)), relay.var("w", shape=(4, 8))
graph = sterna.IRModule.from_expr(relay.nn.softmax(relay.nn.dense(x, w)))
weights = np.random.default_rng(0).standard_normal((4, 8)).astype("float32")
model = sterna.compile((graph, {"w": weights}), target="interpreted")

data = np.ones((2, 8), "float32")
print(np.allclose(model(data), sterna.compile((graph, {"w": weights}))(data), atol=1e-6))
for kernel in model.report().kernels:
    print(kernel.anchor, "|", kernel.why)
