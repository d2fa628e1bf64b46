"""PyTorch: the same networks by every reader, changes in place, and what is refused."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sterna
from sterna import relay
from tests.frontend.torch_support import expect_close, expect_eager, imported, results
from tests.support import ROOT, clean_environment, require_module

require_module("torch")
import torch  # noqa: E402
from torch import nn  # noqa: E402

from tests.frontend import torch_networks as networks  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

CASES: dict[str, tuple[Callable[[], Any], tuple[Any, ...]]] = {
    "resnet": (networks.ResNet, (torch.randn(2, 3, 32, 32),)),
    "encoder": (networks.Encoder, (torch.randint(0, 50, (2, 6)),)),
    "lstm": (lambda: networks.Recurrent("LSTM"), (torch.randn(2, 3, 5),)),
    "gru": (lambda: networks.Recurrent("GRU"), (torch.randn(2, 3, 5),)),
    "in place": (networks.InPlace, (torch.randn(3, 4),)),
}


def case_of(name: str) -> tuple[Any, tuple[Any, ...]]:
    build, inputs = CASES[name]
    return networks.made(build()), inputs


@pytest.mark.parametrize("name", CASES)
def test_a_module_by_its_export(name: str) -> None:
    model, inputs = case_of(name)
    expect_eager(model, *inputs)


@pytest.mark.parametrize("name", CASES)
def test_a_file_without_decomposition(name: str, tmp_path: Path) -> None:
    model, inputs = case_of(name)
    torch.export.save(torch.export.export(model, inputs), tmp_path / "model.pt2")
    module = imported(tmp_path / "model.pt2")
    expect_close(results(module, *inputs), model(*inputs))


@pytest.mark.parametrize("name", CASES)
def test_torchscript_traced(name: str) -> None:
    model, inputs = case_of(name)
    script = torch.jit.trace(model, inputs, check_trace=False)
    infos = [(f"in{place}", each.shape) for place, each in enumerate(inputs)]
    _expect_script(script, infos, model, inputs)


@pytest.mark.parametrize("name", ["resnet", "in place"])
def test_torchscript_scripted(name: str) -> None:
    model, inputs = case_of(name)
    script = torch.jit.script(model)
    infos = [(f"in{place}", (tuple(each.shape), "float32")) for place, each in enumerate(inputs)]
    _expect_script(script, infos, model, inputs)


def _expect_script(script: Any, infos: Any, model: Any, inputs: Any) -> None:
    module, params = relay.frontend.from_pytorch(script, infos)
    names = [var.name_hint for var in module["main"].params]
    assert names[: len(infos)] == [name for name, _ in infos]
    assert set(names[len(infos) :]) == set(params)
    given = [*inputs, *(params[name].numpy() for name in names[len(infos) :])]
    expect_close(results(module, *given), model(*inputs))


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_an_encoder_layer_in_one_call(activation: str, norm_first: bool) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(
        16, 4, 32, batch_first=True, activation=activation, norm_first=norm_first).eval()
    x = torch.randn(2, 5, 16)
    with torch.no_grad():
        for weight in layer.parameters():
            weight.copy_(0.3 * torch.randn_like(weight))
        script = torch.jit.trace(layer, x, check_trace=False)
        assert "_transformer_encoder_layer_fwd" in str(script.inlined_graph)
        _expect_script(script, [("x", x.shape)], layer, (x,))


_CAUSAL = torch.ones(5, 5, dtype=torch.bool).triu(1)
_PADDING = torch.zeros(2, 5, dtype=torch.bool)
_PADDING[1, 3:] = True
_NO_KEY = torch.zeros(5, 5, dtype=torch.bool)
_NO_KEY[2] = True

# Masks of an encoder layer with their kinds; of floats PyTorch asks here what is not 0.
MASKS = {
    "of queries and keys": (_CAUSAL, 0),
    "of keys": (_PADDING, 1),
    "of both": ((_CAUSAL | _PADDING[:, None, None, :]).expand(2, 4, 5, 5).contiguous(), 2),
    "of floats": (_PADDING.float() * -3, 1),
    "with a query that sees nothing": (_NO_KEY, 0),
}


class MaskedLayer(nn.Module):
    """An encoder layer as one call, as its fast path makes it."""

    def __init__(self, kind: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.kind = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), kind

    def forward(self, x: Any, mask: Any) -> Any:
        layer, attend = self.layer, self.layer.self_attn
        norms = (layer.norm1.weight, layer.norm1.bias, layer.norm2.weight, layer.norm2.bias)
        linear = (layer.linear1.weight, layer.linear1.bias, layer.linear2.weight,
                  layer.linear2.bias)
        return torch._transformer_encoder_layer_fwd(
            x, 16, 4, attend.in_proj_weight, attend.in_proj_bias, attend.out_proj.weight,
            attend.out_proj.bias, False, False, layer.norm1.eps, *norms, *linear, mask, self.kind,
        )


@pytest.mark.parametrize("name", MASKS)
def test_an_encoder_layer_in_one_call_with_a_mask(name: str) -> None:
    mask, kind = MASKS[name]
    torch.manual_seed(1)
    x = torch.randn(2, 5, 16)
    with torch.no_grad():
        model = MaskedLayer(kind).eval()
        exported = torch.export.export(model, (x, mask))
        assert any("encoder_layer_fwd" in str(node.target) for node in exported.graph.nodes)
        expect_eager(model, x, mask)


def test_a_traced_encoder_layer_with_masks() -> None:
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
    x = torch.randn(2, 5, 16)
    given = {"src": x, "src_mask": _CAUSAL, "src_key_padding_mask": _PADDING}
    with torch.no_grad():
        script = torch.jit.trace(layer, example_kwarg_inputs=given, check_trace=False)
        assert "_transformer_encoder_layer_fwd" in str(script.inlined_graph)
        infos = [(name, (tuple(each.shape), str(each.dtype))) for name, each in given.items()]
        _expect_script(script, infos, layer, (x, _CAUSAL, _PADDING))


class Cells(nn.Module):
    """One step of every kind of recurrent layer."""

    def __init__(self) -> None:
        super().__init__()
        self.gru, self.lstm = nn.GRUCell(6, 5), nn.LSTMCell(5, 5)
        self.tanh, self.relu = nn.RNNCell(5, 5, bias=False), nn.RNNCell(5, 5, nonlinearity="relu")

    def forward(self, x: Any) -> Any:
        state = self.gru(x, x[:, :5])
        hidden, cell = self.lstm(state, (state, x[:, 1:]))
        return self.relu(self.tanh(hidden, cell), state), cell


class Windows(nn.Module):
    """Layers and tensors that files keep as one operator each."""

    def __init__(self) -> None:
        super().__init__()
        self.normed = nn.utils.parametrizations.weight_norm(nn.Conv1d(1, 3, 3))
        self.linear = nn.utils.parametrizations.weight_norm(nn.Linear(6, 2), dim=1)

    def forward(self, x: Any) -> Any:
        window = torch.hann_window(6) + torch.hamming_window(6, periodic=False)
        turned = torch.view_as_complex(x.reshape(2, 3, 2)) * torch.tensor([1j, 2 - 1j, 3.0])
        made = self.normed(x.unsqueeze(1) * window * torch.blackman_window(6))
        return made, self.linear(x), torch.view_as_real(turned)


@pytest.mark.parametrize("length", [5, 12])
def test_recurrent_states_that_are_projected(length: int) -> None:
    """Short sequences are written out; longer ones are a loop."""
    for has_bias in (True, False):
        model = nn.LSTM(
            3, 6, num_layers=2, proj_size=4, bidirectional=True, bias=has_bias
        ).eval()
        expect_eager(model, torch.randn(length, 2, 3))


@pytest.mark.parametrize("kind", [Cells, Windows])
def test_operators_that_a_file_keeps_whole(kind: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = kind().eval(), torch.randn(2, 6)
    with torch.no_grad():
        torch.export.save(torch.export.export(model, (x,)), tmp_path / "model.pt2")
        expect_close(results(imported(tmp_path / "model.pt2"), x), model(x))


def test_powers_of_numbers_in_a_trace() -> None:
    def scaled(x: Any) -> Any:
        return x / x.shape[1] ** 0.5

    x = torch.randn(2, 5)
    script = torch.jit.trace(scaled, x)
    _expect_script(script, [("x", x.shape)], scaled, (x,))


def test_weights_keep_their_names() -> None:
    model, inputs = case_of("encoder")
    script = torch.jit.trace(model, inputs, check_trace=False)
    _, params = relay.frontend.from_pytorch(script, [("t", (2, 6))])
    assert {"head.weight", "tokens.weight", "places"} <= set(params) <= set(model.state_dict())
    np.testing.assert_array_equal(params["head.bias"].numpy(), model.head.bias.detach().numpy())
    _, params = relay.frontend.from_pytorch(
        script, [("t", (2, 6))], use_parser_friendly_name=True
    )
    assert "head_weight" in params


def test_big_operators_stay_big() -> None:
    model, inputs = case_of("encoder")
    text = str(imported(model, inputs)["main"])
    assert "nn.attention" in text and "nn.layer_norm" in text and "nn.gelu" in text
    assert "nn.lstm" in str(imported(*case_of("lstm"))["main"])


def test_compile_of_a_module() -> None:
    model, inputs = case_of("encoder")
    compiled = sterna.compile(model, inputs)
    expect_close([compiled(*inputs)], model(*inputs))


def test_a_file_needs_no_torch(tmp_path: Path) -> None:
    """The command line compiles it in a process that refuses to import torch."""
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh()).eval()
    x = torch.randn(2, 4)
    torch.export.save(torch.export.export(model, (x,)), tmp_path / "model.pt2")
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "import numpy as np, sterna\n"
        "model = sterna.compile('model.pt2')\n"
        "np.save('result.npy', model(np.load('x.npy')))\n"
    )
    np.save(tmp_path / "x.npy", x.numpy())
    environment = clean_environment(PYTHONPATH=str(ROOT))
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, check=True)
    expect_close([np.load(tmp_path / "result.npy")], model(x))


def test_open_extents_are_given_by_their_names(tmp_path: Path) -> None:
    batch = torch.export.Dim("batch", min=1, max=64)

    class Doubled(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.cat([x, x]).view(x.shape[0] * 2, -1, 2)

    exported = torch.export.export(
        Doubled(), (torch.randn(2, 4),), dynamic_shapes=({0: batch},)
    )
    torch.export.save(exported, tmp_path / "model.pt2")
    symbol = str(next(iter(exported.range_constraints)))
    for model in (exported, tmp_path / "model.pt2"):
        compiled = sterna.compile(model, shapes={symbol: 3})
        assert np.shape(compiled(np.ones((3, 4), "float32"))) == (6, 2, 2)


def test_a_buffer_that_changes_is_given_and_comes_back(tmp_path: Path) -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x: Any) -> Any:
            self.count.add_(1)
            return x + self.count

    x = torch.randn(4)
    exported = torch.export.export(Counting(), (x,))
    torch.export.save(exported, tmp_path / "model.pt2")
    for model in (exported, tmp_path / "model.pt2"):
        module = imported(model)
        assert [var.name_hint for var in module["main"].params] == ["x", "count"]
        made, count = results(module, x, np.float32(2))
        expect_close([made, count], [x + 3, torch.tensor(3.0)])


# ---- what is refused ----


class Unknown(nn.Module):
    def forward(self, x: Any) -> Any:
        first = torch.linalg.eig(x)[0].real
        return torch.hash_tensor(x) + first  # line of hash


def test_everything_unknown_is_listed_with_its_line() -> None:
    with pytest.raises(NotImplementedError) as caught:
        imported(Unknown(), (torch.eye(3),))
    text = str(caught.value)
    assert "aten.linalg_eig.default" in text and "aten.hash_tensor.default" in text
    line = 1 + Path(__file__).read_text().splitlines().index(
        "        return torch.hash_tensor(x) + first  # line of hash"
    )
    assert f"test_torch_import.py:{line}" in text


def test_shapes_that_data_decides_are_refused_by_name() -> None:
    class Chosen(nn.Module):
        def forward(self, x: Any) -> Any:
            return x[x[:, 0] > 0, torch.tensor([1])]

    with pytest.raises(NotImplementedError, match=r"aten\.index.*data decides"):
        imported(Chosen(), (torch.randn(4, 3),))


def test_a_target_and_example_inputs_by_place_or_by_name() -> None:
    net, x = torch.nn.Linear(3, 4).eval(), torch.randn(2, 3)
    want = net(x).detach().numpy()
    for told in (((x,), "llvm"), ("llvm", (x,)), ([x],)):
        np.testing.assert_allclose(sterna.compile(net, *told)(x), want, rtol=1e-5, atol=1e-6)
    made = sterna.compile(net, (x,), target="llvm")
    np.testing.assert_allclose(made(x), want, rtol=1e-5, atol=1e-6)
    for twice, target in ((((x,), (x,)), None), (("llvm", (x,)), "llvm"), ((3,), None)):
        with pytest.raises(TypeError, match="a target and a tuple of example inputs, each once"):
            sterna.compile(net, *twice, target=target)


def test_a_module_needs_example_inputs() -> None:
    with pytest.raises(TypeError, match=r"sterna\.compile\(module, \(x,\)\)"):
        sterna.compile(nn.Linear(2, 2))


def test_training_is_refused() -> None:
    with pytest.raises(NotImplementedError, match=r"call eval\(\)"):
        imported(nn.Dropout(0.5).train(), (torch.randn(4),))


SCRIPT_ERRORS: list[tuple[Any, str]] = [
    ({"x": (1, 4)}, "input_infos is a list"),
    ([], "0 entries, and the graph has 1"),
    ([("x", (1, 4)), ("y", (1, 4))], "2 entries, and the graph has 1"),
    ([("x", 4)], "'x'.*no tuple"),
    ([(3, (1, 4))], "pair of a name and a shape"),
    ([("x", (1, 4, 1))], "3 dimensions.* 2 in the graph"),
    ([("x", (1, 5))], r"\(1, 5\).*\(1, 4\)"),
    ([("x", (1, 0))], "first extent may be open"),
]


@pytest.mark.parametrize(("infos", "message"), SCRIPT_ERRORS, ids=range(len(SCRIPT_ERRORS)))
def test_inputs_of_torchscript_that_do_not_fit(infos: Any, message: str) -> None:
    script = torch.jit.trace(nn.Linear(4, 2), torch.randn(1, 4))
    with pytest.raises(RuntimeError, match=message):
        relay.frontend.from_pytorch(script, infos)


def test_converters_of_the_user_go_first() -> None:
    script = torch.jit.trace(nn.ReLU(), torch.randn(3))
    seen = []

    def negative(inputs: Any, types: Any) -> Any:
        seen.append(types)
        return relay.negative(inputs[0])

    module, _ = relay.frontend.from_pytorch(
        script, [("x", (3,))], custom_convert_map={"aten::relu": negative}
    )
    expect_close(results(module, np.ones(3, "float32")), torch.full((3,), -1.0))
    assert seen == [["float32"]]


@pytest.mark.parametrize("reduce", [torch.any, torch.all])
def test_truth_of_uint8_is_uint8(reduce: Any) -> None:
    x = torch.tensor([[0, 3], [2, 1]], dtype=torch.uint8)

    class Reduced(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return reduce(x, -1), reduce(x)

    expect_eager(Reduced(), x)


class Containers(nn.Module):
    """Lists and dictionaries that a script changes."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        made = {"first": x + 1}
        made["second"] = x * 2
        made.update({"third": x - 1})
        last = made.pop("first")
        parts = [last]
        parts.extend([x, x * 3])
        parts.insert(0, -x)
        parts.reverse()
        parts[1] = parts[1] + 5
        made["joined"] = torch.stack(parts) + made.get("none", last)
        return made


def test_containers_that_a_script_changes() -> None:
    x = torch.randn(3, 2)
    module = imported(torch.jit.script(Containers()), (x,))
    expect_close(results(module, x), Containers()(x))
