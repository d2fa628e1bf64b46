"""What the nodes of a network take: by the clock, or by one thread's own time."""

import time

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.runtime import num_threads, set_num_threads
from sterna.target import Target
from sterna.tune.network import BuiltNetwork, KnownKernels, offered_together


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


def test_answers_that_nobody_takes_make_no_external_kernel() -> None:
    x = relay.var("x", shape=(1, 16, 20, 20))
    weight = relay.const(np.ones((16, 16, 1, 1), "float32"))
    network = tvm.IRModule.from_expr(relay.nn.conv2d(x, weight))
    target = Target("llvm")
    untuned = BuiltNetwork.build(network, {}, target, {}, 3).described
    question = next(q for q in untuned.questions.taken if q.endswith("/tile"))
    scope = question.removesuffix("tile")
    tiles = (untuned.questions.kernels | untuned.questions.graph)[question]
    other = next(tile for tile in tiles if tile != untuned.questions.taken[question])
    for idle in ({f"{scope}nothing": "1"}, {question: "1000 x 1000"},
                 {question: untuned.questions.taken[question]}):
        built = BuiltNetwork.build(network, {}, target, idle, 3).described
        assert built.is_same(untuned) and not built.own_nodes(untuned).any()
    changed = BuiltNetwork.build(network, {}, target, {question: other}, 3).described
    assert not changed.is_same(untuned) and changed.questions.taken[question] == other


def test_one_question_of_two_askers_is_offered_in_the_costs_of_the_last() -> None:
    of_graph = {"8 x 8": 520.0, "5 x 8": 550.0, "5 x 16": 530.0}
    of_kernel = {"5 x 8": 110.0, "4 x 8": 160.0}
    assert offered_together(of_graph, of_kernel, "5 x 8") == pytest.approx(
        {"8 x 8": 104.0, "5 x 8": 110.0, "5 x 16": 106.0, "4 x 8": 160.0}
    )
    by_rule = {"ahead": 0.0, "in turn": 1.0}
    assert offered_together(by_rule, by_rule, "ahead") == by_rule
    assert offered_together({"wide": 3.0}, {"5 x 8": 110.0}, "5 x 8")["wide"] == 3.0


def test_kernels_that_were_asked_before_say_the_same() -> None:
    x = relay.var("x", shape=(1, 16, 12, 12))
    ones = [relay.const(np.ones(shape, "float32")) for shape in ((32, 16, 3, 3), (16, 32, 1, 1))]
    made = relay.nn.conv2d(relay.nn.relu(relay.nn.conv2d(x, ones[0], padding=1)), ones[1])
    network, target = tvm.IRModule.from_expr(made), Target("llvm")
    known = KnownKernels()
    untuned = BuiltNetwork.build(network, {}, target, {}, 3, known).described
    offers = untuned.questions.kernels | untuned.questions.graph
    for question, offered in offers.items():
        if len(offered) > 1 and not question.endswith("loops that threads share"):
            answers = {question: sorted(offered, key=offered.__getitem__)[1]}
            again = BuiltNetwork.build(network, {}, target, answers, 3, known).described
            assert again == BuiltNetwork.build(network, {}, target, answers, 3).described
