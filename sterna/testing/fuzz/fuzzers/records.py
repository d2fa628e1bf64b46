"""Broken records of tuning, databases and saved modules: a ValueError says what is wrong."""

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np

from sterna import autotvm, relay
from sterna.auto_scheduler import load_records
from sterna.ir.module import IRModule
from sterna.ir.serialize import load_json, save_json
from sterna.meta_schedule.database import JSONDatabase, TuningRecord
from sterna.target import Target
from sterna.testing.fuzz.fuzzer import Fuzzer
from sterna.testing.fuzz.mutate import mutate, mutate_json
from sterna.testing.fuzz.tape import Tape

TEMPLATE_LINE = (
    '{"input": ["llvm", "dense", [["TENSOR", [4, 8], "float32"], null, "float32"], {}], "config": '
    '{"index": 3, "code_hash": null, "entity": [["tile_y", "sp", [-1, 4]], ["unroll", "ot", 16]]}, '
    '"result": [[0.001, 0.002], 0, 1.5, 1600000000.0], "version": 0.2, "tvm_version": "0.1"}'
)
SEARCH_LINE = (
    r'{"i": [["[\"matmul\", 16, 16, 16]", "llvm", [2, 64, 64, 0, 0, 0, 0, 0], "", 0, []], [[], '
    '[["OWN", 0, "llvm", []], ["SP", 2, 0, 16, [4, 2], 1], ["RE", 2, [0, 1, 2]], ["AN", 2, 1, 2], '
    '["PR", 2, 0, "auto_unroll_max_step$16"], ["FU", 2, [0, 1]]]]], "r": [[0.001], 0, 8.2, 17], '
    '"v": "v0.6"}'
)


class Records(Fuzzer):
    """Files that users exchange: nothing but a ValueError may come of a broken one."""

    name = "records"
    about = "broken logs of tuning, databases and saved modules"
    seconds = 20.0

    def prepare(self, folder: Path, corpus: Path | None) -> None:
        """Write a file of each kind."""
        self._folder = folder
        x = relay.var("x", shape=(2, 3))
        ones = relay.const(np.ones((2, 3), "float32"))
        module = IRModule.from_expr(relay.Function((x,), relay.nn.relu(relay.add(x, ones))))
        self._module = save_json(module)
        database = JSONDatabase(work_dir=folder / "whole")
        workload = database.commit_workload(module)
        database.commit_tuning_record(
            TuningRecord.of_answers({"tile": "4"}, workload, [0.1, 0.2], Target("llvm"))
        )
        self._lines = {
            each.name: each.read_text("utf-8") for each in (folder / "whole").iterdir()
        }

    def check(self, tape: Tape) -> str:
        """Read a broken file."""
        readers: list[Callable[[Tape], object]] = [
            self._read_template_log, self._read_search_log, self._read_database, self._read_module
        ]
        try:
            tape.choice(readers)(tape)
        except ValueError:
            return "refused"
        return "read"

    def _write(self, name: str, text: str, tape: random.Random) -> Path:
        path = self._folder / name
        path.parent.mkdir(exist_ok=True)
        if tape.random() < 0.8:
            path.write_text(mutate_json(text, tape) + "\n", "utf-8")
        else:
            path.write_bytes(mutate(text.encode(), tape))
        return path

    def _read_template_log(self, tape: Tape) -> None:
        path = self._write("template.log", TEMPLATE_LINE, tape)
        autotvm.record.pick_best(path, self._folder / "best.log")

    def _read_search_log(self, tape: Tape) -> None:
        list(load_records(self._write("search.json", SEARCH_LINE, tape)))

    def _read_database(self, tape: Tape) -> None:
        broken = tape.choice(sorted(self._lines))
        for name, text in self._lines.items():
            path = self._folder / "broken" / name
            if name == broken:
                self._write(f"broken/{name}", text, tape)
            else:
                path.parent.mkdir(exist_ok=True)
                path.write_text(text, "utf-8")
        with JSONDatabase(work_dir=self._folder / "broken") as database:
            for record in database.get_all_tuning_records():
                record.as_json()

    def _read_module(self, tape: Tape) -> None:
        text = mutate_json(self._module, tape)
        str(load_json(text if tape.random() < 0.8 else mutate(text.encode(), tape)))


FUZZER = Records()
