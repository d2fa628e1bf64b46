"""Why is a kernel slow? What was chosen, how far from its bound it runs, and its inner loop."""

import re

import numpy as np

import sterna
from sterna import relay
from sterna.model.stages import Stages
from sterna.target import Target

x, w = relay.var("x", shape=(64, 256)), relay.var("w", shape=(256, 256))
graph = sterna.IRModule.from_expr(relay.Function([x, w], relay.nn.relu(relay.nn.dense(x, w))))
weights = {"w": np.ones((256, 256), "float32")}
model = sterna.compile((graph, weights))

# 1. What was fused, which schedule it got, and what was asked, offered at which cost and taken.
for kernel in model.report().kernels:
    print(kernel.operators, kernel.schedule, kernel.decisions)

# 2. What each kernel takes, and how much of what the machine can do that is. `sterna profile`
#    shows the same as a table; a kernel far below the others is the one to look at.
times = model.profile(repeat=3)
for node in times.nodes:
    reached = times.share_of_bound(node)
    print(node.name, f"{node.gflops():.0f} GFLOP/s, {reached:.0%} of its bound")

# 3. Its loops and its assembly: a good inner loop is nearly all multiply-adds on registers.
#    `sterna inspect --show asm --kernel dense` prints all of it.
stages = Stages.of(graph, weights, Target("llvm -mcpu=native"), opt_level=3)
print(stages.text("tir", "dense").splitlines()[0])
multiply_adds = re.findall(r"\b(?:fmla|vfmadd\w+|fmadd)\b", stages.text("asm", "dense"))
print(len(multiply_adds), "multiply-adds are written out")
