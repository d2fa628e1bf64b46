"""Compiles a dense layer by an implementation that lies in a folder of its own."""

from pathlib import Path

import numpy as np

import sterna
from sterna import relay
from sterna.schedule import implementations

# In the tree the file lies in that folder itself, and nothing else has to know it.
implementations.__path__.append(str(Path(__file__).with_name("implementations")))

rng = np.random.default_rng(0)
x, w = relay.var("x", shape=(3, 64)), relay.var("w", shape=(40, 64))
graph = sterna.IRModule.from_expr(relay.Function([x, w], relay.nn.relu(relay.nn.dense(x, w))))
weights = {"w": rng.standard_normal((40, 64)).astype("float32")}

# It is asked for by name here; without an answer the cheapest candidate is taken.
answers = {"schedule.answers": {"implementation": "outer_products"}}
with sterna.transform.PassContext(config=answers):
    model = sterna.compile((graph, weights))

data = rng.standard_normal((3, 64)).astype("float32")
print(np.allclose(model(data), np.maximum(data @ weights["w"].T, 0), rtol=1e-4, atol=1e-5))
print(model.report().kernels[0].decisions["implementation"])
