"""Models whose data is too large to be linked: it lies behind the library, and is mapped."""

import sys
from pathlib import Path

import numpy as np
import pytest

import sterna
from sterna import relay
from sterna.codegen import model_data
from sterna.support.elf_segment import PAGE
from sterna.support.mapped_file import give_back, is_mapped, map_part, move_to_file


def network(columns: int = 24) -> sterna.IRModule:
    rng = np.random.default_rng(0)
    x = relay.var("x", shape=(2, 16))
    weights = [rng.standard_normal(shape, "float32") for shape in ((16, 16), (columns, 16))]
    made: relay.RelayExpr = x
    for weight in weights:
        made = relay.nn.relu(relay.nn.dense(made, relay.const(weight)))
    return sterna.IRModule.from_expr(relay.Function((x,), made))


@pytest.fixture
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    if sys.platform != "linux":
        pytest.skip("libraries here are not of ELF")
    monkeypatch.setattr(model_data, "MOST_LINKED", 0)


@pytest.mark.usefixtures("everything_is_large")
def test_data_behind_a_library_is_found(tmp_path: Path) -> None:
    model, x = sterna.compile(network()), np.ones((2, 16), "float32")
    path = tmp_path / "large.so"
    model.export(path)
    loaded = sterna.load(path)
    np.testing.assert_array_equal(loaded(x), model(x))
    mapped = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()
              if line.endswith(path.name)]
    assert any(line[1] == "r--p" and int(line[2], 16) and int(line[2], 16) % PAGE == 0
               for line in mapped)
    content = path.read_bytes()
    model.export(path)
    assert path.read_bytes() == content  # the same input gives the same bytes


@pytest.mark.usefixtures("everything_is_large")
def test_a_damaged_part_behind_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "large.so"
    sterna.compile(network()).export(path)
    content = bytearray(path.read_bytes())
    content[-400] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="damaged"):
        sterna.load(path)


@pytest.mark.usefixtures("everything_is_large")
@pytest.mark.parametrize("form", [".o", ".a", ".tar"])
def test_other_forms_are_refused(form: str, tmp_path: Path) -> None:
    told = rf"goes behind a linked library: export it as \.so.*\{form} holds at most"
    with pytest.raises(ValueError, match=told):
        sterna.compile(network()).export(tmp_path / f"large{form}")
    assert not list(tmp_path.iterdir())


def test_parts_of_files_leave_memory_and_come_back(tmp_path: Path) -> None:
    values = np.arange(1 << 20, dtype="float32")
    values.tofile(tmp_path / "weights")
    with open(tmp_path / "weights", "rb") as file:
        part = np.frombuffer(map_part(file.fileno(), 128, values.nbytes - 128), "float32")
    moved = move_to_file(values.data.cast("B"))
    assert moved is not None
    for held, wanted in ((part, values[32:]), (np.frombuffer(moved, "float32"), values)):
        address = held.ctypes.data
        assert is_mapped(address)
        np.testing.assert_array_equal(held, wanted)
        give_back(address, held.nbytes)
        np.testing.assert_array_equal(held, wanted)
    own = values.copy()
    give_back(own.ctypes.data, own.nbytes)  # which is no such part
    np.testing.assert_array_equal(own, values)
