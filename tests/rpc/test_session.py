"""Sessions: values, arrays, functions, modules, errors; and files."""

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import rpc, te
from sterna.contrib import utils
from sterna.rpc.remote import RemoteModule
from sterna.rpc.remote_memory import ADDRESSES
from tests.rpc.support import TestServer
from tests.support import require_program

# ---- values ----


def test_values_come_back_as_they_went(remote: rpc.RPCSession) -> None:
    same = remote.get_function("test.same")
    values: list[Any] = [
        None, True, False, 0, -(2**63), 2**63 - 1, 0.5, "", "täglich\0", b"", b"\0\xff", [],
        [1, ["a", [None]]],
    ]
    assert same(*values) == values
    assert [type(v) for v in same(True, 1, 1.0)] == [bool, int, float]
    assert same(tvm.DataType("float16"), tvm.DataType("int8x4")) == ["float16", "int8x4"]
    assert same(remote.cpu(3)) == [remote.cpu(3)]
    assert same(np.float32(1.5), np.int64(7)) == [1.5, 7]


def test_values_that_cannot_go_are_refused_by_name(remote: rpc.RPCSession) -> None:
    same = remote.get_function("test.same")
    with pytest.raises(TypeError, match="dict cannot go to a remote machine"):
        same({"a": 1})
    with pytest.raises(TypeError, match=r"cpu\(0\) is no device of .*; use one of the session's"):
        same(tvm.cpu(0))
    with pytest.raises(TypeError, match="export it, upload the file and load it there"):
        same(tvm.runtime.system_lib())
    nested: list[Any] = []
    for _ in range(20):
        nested = [nested]
    with pytest.raises(ValueError, match="nest at most 16 deep"):
        same(nested)
    assert same(1) == [1]


def test_functions_are_values(remote: rpc.RPCSession) -> None:
    add_one = remote.get_function("test.add_one")
    assert add_one(41) == 42
    add_two = remote.get_function("test.compose")(add_one)
    assert isinstance(add_two, tvm.runtime.PackedFunc) and add_two(40) == 42
    (again,) = remote.get_function("test.same")(add_one)
    assert again(1) == 2
    with pytest.raises(AttributeError, match=r"127.0.0.1:\d+ \(board\) has no function 'none'"):
        remote.get_function("none")


def test_functions_of_the_client_are_called_back(remote: rpc.RPCSession) -> None:
    seen: list[int] = []

    def note(value: int) -> int:
        seen.append(value)
        return value * value

    assert remote.get_function("test.call_back")(note, 4) == [0, 1, 4, 9]
    assert seen == [0, 1, 2, 3]
    assert remote.get_function("test.compose")(note)(3) == 81
    deep = remote.get_function("test.call_back")
    assert deep(lambda n: deep(lambda m: n * m, 3), 3) == [[0, 0, 0], [0, 1, 2], [0, 2, 4]]


def test_an_array_of_the_server_reaches_a_function_of_the_client(remote: rpc.RPCSession) -> None:
    array = tvm.nd.array(np.arange(3, dtype="int32"), remote.cpu(0))
    got = []

    def note(x: tvm.nd.NDArray) -> tvm.nd.NDArray:
        got.append(x.numpy().tolist())
        return x

    remote.get_function("test.compose")(note)(array)
    assert got == [[0, 1, 2]] * 2


def test_exceptions_keep_their_class_and_bring_their_traceback(remote: rpc.RPCSession) -> None:
    fail = remote.get_function("test.fail")
    with pytest.raises(KeyError, match="a name") as caught:
        fail("KeyError", "a name")
    assert "in fail" in caught.value.__notes__[0]
    with pytest.raises(tvm.TVMError, match="SystemExit: 3"):
        fail("SystemExit", "3")

    def raises(value: int) -> None:
        raise ZeroDivisionError(f"by {value}")

    with pytest.raises(ZeroDivisionError, match="by 0"):
        remote.get_function("test.call_back")(raises, 1)
    assert remote.get_function("test.add_one")(1) == 2


# ---- arrays ----


def test_arrays_go_there_and_back(remote: rpc.RPCSession) -> None:
    values = np.random.default_rng(0).random((3, 4, 5)).astype("float32")
    there = tvm.nd.array(values, remote.cpu(0))
    assert there.device == remote.cpu(0) and str(there.device).startswith("remote[")
    np.testing.assert_array_equal(there.numpy(), values)
    here = there.copyto(tvm.cpu(0))
    np.testing.assert_array_equal(here.numpy(), values)
    other = tvm.nd.empty(values.shape, "float32", remote.cpu(0)).copyfrom(here)
    other.copyto(there)
    again = other.copyto(remote.cpu(0))
    np.testing.assert_array_equal(again.numpy(), values)
    remote.get_function("test.double_in_place")(again)
    np.testing.assert_array_equal(again.numpy(), values * 2)
    np.testing.assert_array_equal(there.reshape((60,)).numpy(), values.reshape(60))


@pytest.mark.parametrize("dtype", ["int4", "bfloat16", "bool", "float64", "uint8"])
def test_arrays_of_every_type(remote: rpc.RPCSession, dtype: str) -> None:
    here = tvm.nd.array(np.array([[0, 1, 1, 0, 1]]), dtype=dtype)
    there = here.copyto(remote.cpu(0))
    kind, shape, device, _ = remote.get_function("test.describe_array")(there)
    assert (kind, shape, device) == (dtype, [1, 5], "cpu(0)")
    np.testing.assert_array_equal(there.numpy(), here.numpy())


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1 << 20, 3)])
def test_arrays_of_every_size(remote: rpc.RPCSession, shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(1).integers(0, 255, shape, dtype="uint8")
    there = tvm.nd.array(values, remote.cpu(0))
    assert there.shape == shape
    np.testing.assert_array_equal(there.numpy(), values)


def test_views_are_views_there_too(remote: rpc.RPCSession) -> None:
    there = tvm.nd.array(np.arange(8, dtype="float32"), remote.cpu(0))
    part = there._create_view((2, 2), "float32", 16)
    remote.get_function("test.double_in_place")(part)
    assert there.numpy().tolist() == [0, 1, 2, 3, 8, 10, 12, 14]


def test_arrays_that_functions_make_are_let_go(remote: rpc.RPCSession) -> None:
    made = remote.get_function("test.make_array")(4)
    assert made.numpy().tolist() == [0, 1, 2, 3]
    before = len(ADDRESSES._blocks)
    for _ in range(50):
        remote.get_function("test.make_array")(4)
        tvm.nd.empty((3,), device=remote.cpu(0))
    gc.collect()
    assert len(ADDRESSES._blocks) == before


def test_an_array_of_this_machine_is_refused(remote: rpc.RPCSession) -> None:
    with pytest.raises(TypeError, match=r"could not write to it; copy it over: tvm.nd.array"):
        remote.get_function("test.double_in_place")(np.zeros(3, "float32"))


def test_arrays_of_two_sessions_are_copied_but_not_mixed(server: TestServer) -> None:
    with server.connect(key="board") as one, server.connect(key="board") as other:
        array = tvm.nd.array(np.arange(5.0), one.cpu(0))
        moved = array.copyto(other.cpu(0))
        assert moved.device != array.device
        np.testing.assert_array_equal(moved.numpy(), np.arange(5.0))
        with pytest.raises(TypeError, match="cannot be passed to a function of"):
            other.get_function("test.double_in_place")(array)


def test_devices_that_are_not_there(remote: rpc.RPCSession) -> None:
    assert remote.cpu(0).exist and not remote.ext_dev(0).exist
    remote.cpu(0).sync()
    with pytest.raises(RuntimeError, match=r"there is no remote device ext_dev\(0\)"):
        tvm.nd.empty((1,), "float32", remote.ext_dev(0))
    names = ("cpu", "cuda", "cl", "vulkan", "metal", "rocm", "ext_dev", "hexagon", "webgpu")
    kinds = [getattr(remote, name)(1).device_type % 128 for name in names]
    assert kinds == [1, 2, 4, 7, 8, 10, 12, 16, 15]
    assert remote.device("cuda:2").device_id == 2 and remote.device(tvm.cpu(1)) == remote.cpu(1)


# ---- the life of a session ----


def test_a_closed_session_says_so(server: TestServer) -> None:
    session = server.connect(key="board")
    add_one, array = session.get_function("test.add_one"), tvm.nd.empty((2,), device=session.cpu(0))
    session.close()
    session.close()
    for use in (lambda: add_one(1), lambda: session.listdir()):
        with pytest.raises(rpc.RPCError, match="the session has ended: it was closed here"):
            use()
    with pytest.raises(RuntimeError, match=r"session of the remote device cpu\(0\) has ended"):
        array.numpy()


def test_an_array_of_an_ended_session_is_not_taken_for_another(server: TestServer) -> None:
    old = server.connect(key="board")
    array = tvm.nd.array(np.arange(3.0), old.cpu(0))
    old.close()
    with server.connect(key="board") as new:
        assert array.device == new.cpu(0)  # its number is used again
        other = tvm.nd.array(np.ones(3), new.cpu(0))
        with pytest.raises(rpc.RPCError, match="belongs to a session that has ended"):
            array.numpy()
        with pytest.raises(rpc.RPCError, match="belongs to a session that has ended"):
            new.get_function("test.double_in_place")(array)
        del array
        assert other.numpy().tolist() == [1, 1, 1]


def test_a_session_lives_as_long_as_anything_of_it(server: TestServer) -> None:
    session = server.connect(key="board")
    array = tvm.nd.array(np.arange(3.0), session.cpu(0))
    peer = session._peer
    del session
    gc.collect()
    assert array.numpy().tolist() == [0, 1, 2]
    ends = peer.stream
    del peer, array
    gc.collect()
    assert ends.socket.fileno() == -1  # type: ignore[attr-defined]


def test_a_local_session() -> None:
    session = rpc.LocalSession()
    tvm.register_func("test.local", lambda x: x * 2, override=True)
    assert session.get_function("test.local")(4) == 8
    assert tvm.nd.array(np.ones(2), session.cpu(0)).numpy().tolist() == [1, 1]
    session.upload(bytearray(b"text"), target="a.txt")
    assert session.listdir() == ["a.txt"]
    session.close()


# ---- files ----


def test_files_go_there_and_back(remote: rpc.RPCSession, tmp_path: Path) -> None:
    content = np.random.default_rng(2).bytes((9 << 20) + 5)
    (tmp_path / "a.bin").write_bytes(content)
    remote.upload(tmp_path / "a.bin")
    remote.upload(b"", target="empty")
    remote.upload(bytearray(b"x"), target="deep/er/b.txt")
    assert remote.listdir() == ["a.bin", "deep", "empty"] and remote.listdir("deep/er") == ["b.txt"]
    assert remote.download("a.bin") == content and remote.download("empty") == b""
    remote.upload(b"other", target="a.bin")
    assert remote.download("a.bin") == b"other"
    remote.remove("deep")
    remote.remove("a.bin")
    assert remote.listdir(".") == ["empty"]
    with pytest.raises(FileNotFoundError, match=r"the session has no file 'a\.bin'"):
        remote.download("a.bin")
    with pytest.raises(FileNotFoundError, match="cannot upload"):
        remote.upload(tmp_path / "missing")
    with pytest.raises(ValueError, match="under a name"):
        remote.upload(b"x")


# ---- modules ----


def doubling() -> tvm.Module:
    """y = 2 x, compiled."""
    n = te.size_var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] * 2.0, name="B")
    return tvm.build(te.create_schedule(b.op), [a, b], name="double")


@pytest.mark.parametrize("suffix", [".so", ".tar", ".o"])
def test_modules_are_loaded_from_every_form(remote: rpc.RPCSession, suffix: str) -> None:
    require_program("cc")
    path = utils.tempdir().relpath(f"double{suffix}")
    doubling().export_library(path)
    remote.upload(path)
    module = remote.load_module(f"double{suffix}")
    assert module.type_key == "rpc" and module.implements_function("double")
    x = tvm.nd.array(np.arange(4, dtype="float32"), remote.cpu(0))
    y = tvm.nd.empty((4,), "float32", remote.cpu(0))
    module["double"](x, y)
    assert y.numpy().tolist() == [0, 2, 4, 6]
    with pytest.raises(AttributeError, match="no function 'triple'"):
        module["triple"]
    with pytest.raises(ValueError, match="cache_flush_bytes is for functions that run here"):
        module.time_evaluator("double", remote.cpu(0), cache_flush_bytes=1 << 20)
    timer = module.time_evaluator("double", remote.cpu(0), number=3, repeat=2, min_repeat_ms=1)
    result = timer(x, y)
    assert len(result.results) == 2 and min(result.results) > 0
    linked = remote.download_linked_module(f"double{suffix}")
    assert linked[:4] == b"\x7fELF"


def test_modules_there_import_each_other(remote: rpc.RPCSession) -> None:
    require_program("cc")
    path = utils.tempdir().relpath("double.so")
    doubling().export_library(path)
    remote.upload(path)
    module, other = remote.load_module("double.so"), remote.system_lib()
    assert isinstance(module, RemoteModule) and module.remote_kind == "library"
    assert module.imported_modules == []
    other.import_module(module)
    (imported,) = other.imported_modules
    assert imported.implements_function("double")
    assert not other.implements_function("double")
    assert other.implements_function("double", query_imports=True)
    with pytest.raises(TypeError, match="export it, upload the file"):
        module.import_module(tvm.runtime.load_module(path))


def test_what_is_sent_can_be_logged(
    server: TestServer, caplog: pytest.LogCaptureFixture
) -> None:
    with server.connect(key="board", enable_logging=True) as session:
        session.listdir()
    assert any("kind 1" in record.message and " ms" in record.message for record in caplog.records)


def test_a_broken_file_is_refused_by_name(remote: rpc.RPCSession) -> None:
    remote.upload(b"no library", target="broken.so")
    with pytest.raises(ValueError, match=r"broken\.so"):
        remote.load_module("broken.so")
    with pytest.raises(FileNotFoundError, match=r"'none\.so'"):
        remote.load_module("none.so")


def test_the_library_of_the_program_itself(remote: rpc.RPCSession) -> None:
    assert not remote.system_lib().implements_function("none")
