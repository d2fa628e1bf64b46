"""The caches that a network is cut for, where nobody is sure of them."""

from dataclasses import replace

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.schedule.caches import KNOWN, MACHINE, Caches, with_caches
from sterna.schedule.choose import answering, deciding
from sterna.schedule.kernel import Processor
from sterna.target import Target, processor_of
from sterna.tune.network import BuiltNetwork

UNSURE = Processor(l1_bytes=4096, l2_bytes=16384, knows_caches=False)
WRONG = "llvm -mcpu=generic -l1_cache_size_bytes=4096 -l2_cache_size_bytes=16384"


def test_caches_that_are_known_are_not_asked() -> None:
    with deciding("network") as asked:
        assert with_caches(replace(UNSURE, knows_caches=True)).l1_bytes == 4096
    assert not asked.inner


def test_an_answer_replaces_caches_that_may_be_wrong() -> None:
    assert with_caches(UNSURE).l2_bytes == 16384
    with answering({f"{MACHINE}/caches": "64 + 1024 KiB"}):
        found = with_caches(UNSURE)
    assert (found.l1_bytes, found.l2_bytes, found.knows_caches) == (64 << 10, 1 << 20, True)


def test_common_caches_come_before_rare_ones() -> None:
    with deciding("network") as asked:
        with_caches(UNSURE)
    offered = dict(asked.of(MACHINE)["caches"].offered)
    assert len(offered) == len(KNOWN) + 1
    assert sorted(offered, key=offered.__getitem__)[:2] == ["4 + 16 KiB", "64 + 512 KiB"]
    assert Caches(64 << 10, 1 << 20).distance(Caches(32 << 10, 512 << 10)) == 2


@pytest.mark.parametrize(("target", "knows"), [
    (WRONG, False), ("llvm -mcpu=neoverse-n1 -mtriple=aarch64-linux-gnu", True),
])
def test_attributes_of_a_target_may_be_wrong(target: str, knows: bool) -> None:
    assert processor_of(Target(target)).knows_caches is knows


def test_an_answer_of_the_machine_reaches_every_layer() -> None:
    x = relay.var("x", shape=(1, 28, 28, 64))
    weight = relay.const(np.ones((3, 3, 64, 64), "float32"))
    made = relay.nn.conv2d(x, weight, padding=1, data_layout="NHWC", kernel_layout="HWIO")
    network = tvm.IRModule.from_expr(made)
    untuned = BuiltNetwork.build(network, {}, Target(WRONG), {}, 3).described
    answers = {f"{MACHINE}/caches": "64 + 1024 KiB"}
    tuned = BuiltNetwork.build(network, {}, Target(WRONG), answers, 3).described
    assert untuned.questions.taken[f"{MACHINE}/caches"] == "4 + 16 KiB"
    assert tuned.questions.taken[f"{MACHINE}/caches"] == "64 + 1024 KiB"
    assert f"{MACHINE}/caches" in untuned.questions.graph
    assert {**untuned.questions.taken, **answers} != tuned.questions.taken
    assert tuned.own_nodes(untuned).any()
