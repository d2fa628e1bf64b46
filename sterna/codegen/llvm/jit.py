"""JIT linking: object code that runs in this process."""

import ctypes

import llvmlite.binding as llvm

from sterna.codegen.llvm.machine import LOCK, LLVMOptions, create_machine
from sterna.codegen.symbols import HOST, LIBRARY_CONTEXT, NEEDS
from sterna.runtime import _core


class JitModule:
    """Compiled functions by name. Their memory is freed with this object."""

    def __init__(self, *object_bytes: bytes, host: int | None = None, context: int = 0) -> None:
        with LOCK:
            machine = create_machine(LLVMOptions(llvm.get_process_triple()))
            self._engine = llvm.create_lljit_compiler(machine, use_jit_link=True)
            library = llvm.JITLibraryBuilder()
            for content in object_bytes:
                library.add_object_img(content)
            library.add_current_process().export_symbol(HOST)
            try:
                self._tracker = library.link(self._engine, "sterna")
            except RuntimeError as error:
                raise ValueError(f"the compiled module cannot be loaded: {error}") from None
        self._addresses: dict[str, int] = {HOST: self._tracker[HOST]}
        self._held: list[object] = []
        if (needs := self.find(NEEDS)) is not None:
            _core.check_processor(ctypes.string_at(needs).decode())
        self.set_host(_core.host_address() if host is None else host)
        slot = self.find(LIBRARY_CONTEXT) if context else None
        if slot is not None:
            ctypes.c_void_p.from_address(slot).value = context

    def set_host(self, address: int) -> None:
        """Gives the code its sterna_host; 0 for none."""
        ctypes.c_void_p.from_address(self._addresses[HOST]).value = address or None

    def find(self, name: str) -> int | None:
        """Where a symbol lies, if there is one."""
        if name not in self._addresses:
            try:
                with LOCK:
                    found = self._engine.lookup("sterna", name)
            except RuntimeError:
                return None
            self._held.append(found)
            self._addresses[name] = found[name]
        return self._addresses[name]

    def address(self, name: str) -> int:
        """Where a symbol lies."""
        found = self.find(name)
        if found is None:
            raise KeyError(f"the compiled module has no symbol '{name}'")
        return found
