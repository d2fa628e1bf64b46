"""relay.frontend.from_pytorch, as users of the classic interface call it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sterna.frontend.calls import dtype_of, limited_folding
from sterna.frontend.format import ImportOptions
from sterna.frontend.inputs import Inputs
from sterna.frontend.torch.importer import CustomConverters, ProgramImporter
from sterna.frontend.torch.load_model import read
from sterna.frontend.torch.program import Program
from sterna.frontend.torch.read_script import read_script
from sterna.frontend.torch.script_inputs import expect_inputs, graph_of, parsed_infos
from sterna.ir.module import IRModule
from sterna.relay.expr import RelayExpr
from sterna.runtime import NDArray
from sterna.support.errors import OpNotImplemented

Convert = Callable[[list[Any], list[str]], Any]


def from_pytorch(
    script_module: Any,
    input_infos: Any = None,
    custom_convert_map: Mapping[str, Convert] | None = None,
    default_dtype: str = "float32",
    use_parser_friendly_name: bool = False,
    keep_quantized_weight: bool = False,
    export_renamed_c_graph_path: str | None = None,
    preserve_pytorch_scopes: bool = False,
) -> tuple[IRModule, dict[str, NDArray]]:
    """A model's graph as the function main of a module, and its weights.

    script_module: what torch.jit.trace or torch.jit.script gives; or an ExportedProgram or the
        path of a .pt2 file, which know their inputs.
    input_infos: for TorchScript, a list of (name, shape) or (name, (shape, dtype)), one per input.
    custom_convert_map: {"aten::name": function(inputs, input_types) -> expr}, which go before the
        converters that there are.
    default_dtype: the type of inputs that neither the graph nor input_infos gives one.
    use_parser_friendly_name: dots in the names of weights become underscores.
    export_renamed_c_graph_path: a folder for the text of the TorchScript graph.
    preserve_pytorch_scopes: accepted; expressions always carry the line that made them.
    """
    if keep_quantized_weight:
        raise OpNotImplemented("keep_quantized_weight: quantised modules of eager mode")
    program = _program(script_module, input_infos, default_dtype, export_renamed_c_graph_path)
    with limited_folding() as room:
        custom = _custom(custom_convert_map)
        module, params = ProgramImporter(program, Inputs({}, {}), False, room, custom).run()
    if use_parser_friendly_name:
        return _renamed(module, params)
    return module, params


def _program(model: Any, infos: Any, default_dtype: str, folder: str | None) -> Program:
    if not hasattr(model, "graph") or hasattr(model, "graph_signature"):
        return read(model, ImportOptions())
    import torch

    parsed = parsed_infos(infos)
    graph = graph_of(model).copy()
    torch._C._jit_pass_inline(graph)
    if folder is not None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / "graph.txt").write_text(str(graph))
    own = 1 if isinstance(model, torch.nn.Module) else 0
    expect_inputs(parsed, list(graph.inputs())[own:])
    return read_script(model, parsed, default_dtype)


def _custom(given: Mapping[str, Convert] | None) -> CustomConverters:
    """Converters that take arguments by place, and the types of the tensors among them."""
    return {name.replace("::", "."): _by_place(each) for name, each in (given or {}).items()}


def _by_place(function: Convert) -> Callable[..., Any]:
    def convert(**arguments: Any) -> Any:
        values = list(arguments.values())
        types = [dtype_of(v) if isinstance(v, RelayExpr) else type(v).__name__ for v in values]
        return function(values, types)

    return convert


def _renamed(
    module: IRModule, params: dict[str, NDArray]
) -> tuple[IRModule, dict[str, NDArray]]:
    names = {name: name.replace(".", "_") for name in params}
    for var in module["main"].params:
        if var.name_hint in names:
            var.name_hint = names[var.name_hint]
    return module, {names[name]: value for name, value in params.items()}
