"""Random numbers, which are refused by name: another generator gives others."""

from sterna.frontend.torch.table import aten
from sterna.relay.expr import RelayExpr
from sterna.support.errors import OpNotImplemented


@aten(
    "rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "normal",
    "uniform", "bernoulli", "multinomial", "poisson", "binomial", "cauchy", "exponential",
    "geometric", "log_normal", "normal_functional", "random",
    "prims::normal", "native_dropout.random", "_fused_dropout", "prims::inductor_random",
)
def random_numbers(**about: object) -> RelayExpr:
    raise OpNotImplemented("random numbers")
