"""What the generator of LLVM code writes: pure instructions once in a block, short addresses."""

from sterna.codegen.llvm import LLVMOptions, generate
from sterna.codegen.llvm.emitter import FunctionWriter, ModuleWriter
from sterna.ir.build import const
from sterna.ir.expr import Var
from sterna.support.dtype import DataType
from sterna.tir.stmt import Buffer, BufferLoad, BufferStore, For, PrimFunc, seq


def test_a_block_computes_what_is_pure_once() -> None:
    writer = FunctionWriter(ModuleWriter(LLVMOptions.native(), "m"))
    first = writer.value("add i32 %x, 2")
    assert writer.value("add i32 %x, 2") == first
    assert writer.value("load i32, ptr %p") != writer.value("load i32, ptr %p")
    writer.start("next")
    assert writer.value("add i32 %x, 2") != first


def test_constants_behind_an_index_are_steps_from_one_address() -> None:
    i = Var("i", DataType("int32"))
    a, b = (Buffer(name, DataType("float32"), (const(64),)) for name in "ab")
    copies = [BufferStore(b, BufferLoad(a, (i * 4 + k,)), (i * 4 + k,)) for k in range(4)]
    body = For(i, const(0), const(16), "serial", seq(*copies))
    text = generate([PrimFunc("f", (a.data, b.data), (a, b), body)], LLVMOptions.native())
    assert text.count("mul nsw i32") == 1 and "add nsw i32" not in text
    assert text.count("zext nneg i32") == 1
