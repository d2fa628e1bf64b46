"""PyTorch's own descriptions of operators, of modules and of control flow, with sample calls."""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

# Where sample calls come from: op_db, module_db and hop_db.
DATABASES = ("operators", "modules", "control flow")


@dataclass(frozen=True)
class SampleOfModule:
    """A call of a module of its own."""

    function: Any
    input: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @staticmethod
    def output_process_fn_grad(made: Any) -> Any:
        """Results are compared as they are."""
        return made


class ModuleCalls:
    """A module in the form of an operator's description."""

    variant_test_name = ""
    op = None

    def __init__(self, info: Any) -> None:
        self.info = info
        self.name = str(info.name)

    def sample_inputs(
        self, device: str, dtype: Any, requires_grad: bool
    ) -> Iterator[SampleOfModule]:
        """Calls of modules made with different arguments, as they are for inference."""
        for given in self.info.module_inputs_func(
            self.info, device=device, dtype=dtype, requires_grad=requires_grad, training=False
        ):
            if given.forward_input is None:
                continue
            made = given.constructor_input
            module = self.info.module_cls(*made.args, **made.kwargs).to(dtype).eval()
            call = given.forward_input
            bound = inspect.signature(module.forward).bind(*call.args, **call.kwargs)
            first, *rest = bound.args
            yield SampleOfModule(module, first, tuple(rest), dict(bound.kwargs))


def described(database: str, dtype: Any) -> list[Any]:
    """The descriptions of what takes a type of elements."""
    if database == "modules":
        from torch.testing._internal.common_modules import module_db

        return [ModuleCalls(info) for info in module_db if dtype in info.dtypes]
    if database == "control flow":
        from torch.testing._internal.hop_db import hop_db

        return [op for op in hop_db if dtype in op.dtypes]
    from torch.testing._internal.common_methods_invocations import op_db

    return [op for op in op_db if dtype in op.dtypes]
