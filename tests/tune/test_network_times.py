"""What the nodes of a network take: by the clock, or by one thread's own time."""

import time

import numpy as np

import sterna as tvm
from sterna import relay
from sterna.runtime import num_threads, set_num_threads
from sterna.target import Target
from sterna.tune.network import BuiltNetwork


def test_one_thread_is_timed_by_what_it_had_of_a_processor() -> None:
    x = relay.var("x", shape=(1, 64))
    network = tvm.IRModule.from_expr(relay.nn.relu(x))
    threads = num_threads()
    set_num_threads(1)
    try:
        running = BuiltNetwork.build(network, {}, Target("llvm"), {}, 3).here()
        running.outputs({"x": np.ones((1, 64), "float32")})
        begin = time.thread_time()
        seconds = running.run()
        spent = time.thread_time() - begin
    finally:
        set_num_threads(threads)
    assert len(seconds) == len(running.described.scopes)
    assert 0 < seconds.sum() <= spent
