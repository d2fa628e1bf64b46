"""The process that runs cases: python -m sterna.testing.fuzz.worker MODULE FOLDER [CORPUS].

It reads a line of JSON for each, {"seed": 1} or {"values": [...]}, and answers with one: how the
case ended, or what was raised; {"values": [...], "error": "..."} asks for a program that shows it,
and "fork" lets a child run the case.
The numbers of the case at hand stand in FOLDER/tape, one a line, so that they are there when this
process is not any more.
"""

import contextlib
import faulthandler
import json
import os
import resource
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import Any

from sterna.testing.fuzz.fuzzer import Fuzzer, find_fuzzer
from sterna.testing.fuzz.tape import Tape


def replay(place: str, values: list[int]) -> None:
    """Run one case in this process, as the programs do that are printed."""
    fuzzer = find_fuzzer(place)
    with tempfile.TemporaryDirectory() as folder:
        fuzzer.prepare(Path(folder), None)
        print(fuzzer.check(Tape(values=values)))


def serve(fuzzer: Fuzzer, folder: Path, corpus: Path | None) -> None:
    """Answer lines until there are no more."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what is printed is no answer
    if fuzzer.memory is not None:
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (fuzzer.memory, most))
    fuzzer.prepare(folder, corpus)
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        if "error" in asked:
            answer = {"program": fuzzer.program(asked["values"], asked["error"])}
        elif asked.get("fork"):
            answer = _answer_in_child(fuzzer, asked, folder)
        else:
            answer = _answer(fuzzer, asked, folder)
        print(json.dumps(answer), file=answers, flush=True)


def _answer(fuzzer: Fuzzer, asked: dict[str, Any], folder: Path) -> dict[str, Any]:
    record = os.open(folder / "tape", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    tape = Tape(
        asked.get("seed"), asked.get("values", ()),
        lambda value: _write(record, value),
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return {"ending": fuzzer.check(tape)}
    except Exception as error:
        return {
            "kind": kind_of(error), "error": "".join(traceback.format_exception(error))[-6000:],
            "values": tape.values,
        }
    finally:
        os.close(record)


def _answer_in_child(fuzzer: Fuzzer, asked: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The same by a process that may end: starting a worker anew takes longer."""
    path = folder / "answer"
    path.unlink(missing_ok=True)
    child = os.fork()
    if not child:
        path.write_text(json.dumps(_answer(fuzzer, asked, folder)))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if path.exists():
        answer: dict[str, Any] = json.loads(path.read_text())
        return answer
    kind = ending_of(os.waitstatus_to_exitcode(status))
    return {"kind": kind, "error": kind, "values": asked["values"]}


def ending_of(code: int) -> str:
    """How a process has ended, in words."""
    return f"ended by signal {-code}" if code < 0 else f"ended with status {code}"


def _write(record: int, value: int) -> None:
    os.write(record, b"%d\n" % value)


def kind_of(error: BaseException) -> str:
    """What two errors of one mistake have in common: their type, and the last of our lines."""
    frames = traceback.extract_tb(error.__traceback__)
    place = next((f"{Path(f.filename).name}:{f.name}" for f in reversed(frames)
                  if "sterna" in f.filename), "")
    return f"{type(error).__name__} in {place}"


def main() -> None:
    """Serve the fuzzer that the command line names."""
    faulthandler.enable()
    place, folder, *corpus = sys.argv[1:]
    os.environ["STERNA_CACHE"] = "off"
    with contextlib.suppress(KeyboardInterrupt):
        serve(find_fuzzer(place), Path(folder), Path(corpus[0]) if corpus else None)


if __name__ == "__main__":
    main()
