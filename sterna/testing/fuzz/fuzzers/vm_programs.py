"""Broken programs of the virtual machine and parameters: refused, or run to an end or an error."""

import numpy as np

from sterna import relay
from sterna.runtime import cpu
from sterna.runtime.params import load_param_dict, save_param_dict
from sterna.runtime.vm import Executable, VirtualMachine
from sterna.testing.fuzz.fuzzer import Fuzzer
from sterna.testing.fuzz.fuzzers.texts import TEXTS
from sterna.testing.fuzz.mutate import mutate, mutate_head
from sterna.testing.fuzz.tape import Tape

# Of a choice and of data types, with what main is given.
CHOICE, LIST = TEXTS[1:3]
GIVEN = {CHOICE: (np.ones((3, 4), "float32"), np.bool_(True)), LIST: (np.int32(4),)}


class VMPrograms(Fuzzer):
    """Bytecode with bytes changed never leaves its own memory, whatever it asks for."""

    name = "vm-programs"
    about = "broken bytecode of the virtual machine, and broken parameters"
    seconds = 20.0
    memory = 4 << 30

    def prepare(self, folder: object, corpus: object) -> None:
        """Compile the programs."""
        self._params = bytes(save_param_dict({
            "a": np.arange(6, dtype="float32").reshape(2, 3), "b": np.ones((0, 4), "int8"),
            "c": np.array(True), "long" * 20: np.zeros((1, 1, 1, 1, 7), "float16")}))
        self._programs = []
        for text, given in GIVEN.items():
            code, lib = relay.vm.compile(relay.parse(text), target="llvm").save()
            self._programs.append((bytes(code), lib, given))

    def check(self, tape: Tape) -> str:
        """Load broken parameters, or load and run a broken program."""
        if tape.random() < 0.3:
            try:
                load_param_dict(self._broken(self._params, tape))
            except ValueError:
                return "parameters refused"
            return "parameters read"
        code, lib, given = tape.choice(self._programs)
        try:
            program = Executable.load_exec(self._broken(code, tape), lib)
        except ValueError:
            return "refused"
        try:
            VirtualMachine(program, cpu()).run(*given)
        except (ValueError, TypeError, IndexError, RuntimeError, MemoryError):
            return "failed"
        return "ran"

    def _broken(self, data: bytes, tape: Tape) -> bytes:
        return mutate_head(data, tape, len(data)) if tape.random() < 0.6 else mutate(data, tape)


FUZZER = VMPrograms()
