"""sterna micro: from a model to a firmware project, built and measured."""

import argparse
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sterna.cli.commands import COMMANDS
from sterna.cli.failures import UsageError
from sterna.cli.inputs import add_inputs, expect_inputs, read_inputs
from sterna.cli.micro_layers import count_layers, expect_counter, layers_text, used_of
from sterna.cli.micro_memory import map_rows, map_svg, map_text
from sterna.cli.models import add_shapes, expect_file, expect_folder, model_files, parse_count
from sterna.cli.output import add_json, progress, show, tell
from sterna.cli.run import outputs_table, summary
from sterna.driver.aot_factory import AOTProgram
from sterna.micro.elf import read_program
from sterna.micro.example import ExampleRun, ExampleTimeoutError, run_example
from sterna.micro.firmware import compile_for, target_of
from sterna.micro.platforms.baremetal import can_emulate
from sterna.micro.platforms.boards import WITH_BOARDS, Board, check_room, find_board
from sterna.micro.platforms.options import EXAMPLE, PROJECT_TYPES
from sterna.micro.project import GeneratedProject, TemplateProject
from sterna.micro.project_api.server import GENERATE, ProjectOption, check_options
from sterna.model import compile
from sterna.model.arguments import TensorSpec
from sterna.model.bench import differences, largest
from sterna.model.compile_model import BESIDE, is_tuned
from sterna.model.import_and_build import expect_straight
from sterna.model.import_model import Graph, import_model
from sterna.model.tuned_answers import read_tuned
from sterna.schedule.config import ANSWERS
from sterna.support.progress import stage
from sterna.support.table import lay_out
from sterna.support.write_aside import write_aside

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

PROGRAMS = {"baremetal": "build/program.elf", "zephyr": "build/zephyr/zephyr.elf",
            "arduino": "build/*.elf"}
SECONDS = 120
PAINTED = "measured: painted before the program ran, and read afterwards"


def add_to(commands: "Subparsers") -> None:
    """Add this command to the command line."""
    parser = commands.add_parser(
        "micro", help=COMMANDS["micro"],
        description="Compile a model for a board, make a project that runs it, build that, and "
        "show what memory it takes. A board that is too small is refused.",
    )
    parser.add_argument("model", metavar="MODEL", help=model_files())
    parser.add_argument("--board", required=True, help="what it is to run on, such as mps2_an386")
    parser.add_argument(
        "--platform", choices=WITH_BOARDS, help="for boards that several have; else the first"
    )
    parser.add_argument(
        "-o", "--output", metavar="FOLDER", help="where to leave the project; else nowhere"
    )
    parser.add_argument(
        "--project-type", choices=PROJECT_TYPES, default=EXAMPLE,
        help="run once on sample inputs, or obey the host; the first if not given",
    )
    parser.add_argument(
        "--option", action="append", type=parse_option, default=[], metavar="NAME=VALUE",
        help="an option of the project, such as toolchain=zig; may be repeated",
    )
    goals = parser.add_mutually_exclusive_group()
    goals.add_argument(
        "--size", action="store_const", const="size", dest="goal",
        help="the shortest code, for bare boards; else what pays for its length",
    )
    goals.add_argument(
        "--speed", action="store_const", const="speed", dest="goal",
        help="the fastest code, however long, for bare boards",
    )
    parser.add_argument(
        "--run", action="store_true", dest="and_run",
        help="show what the board gives, and how far that is from what this machine gives",
    )
    parser.add_argument(
        "--layers", action="store_true",
        help="count the instructions of each kernel, in QEMU: not cycles, which only boards know",
    )
    parser.add_argument(
        "--map", action="store_true", help="show what lies where in the arena, kernel by kernel"
    )
    parser.add_argument(
        "--draw", metavar="FILE.svg", help="draw the same, with the board's flash and RAM"
    )
    parser.add_argument(
        "--flash", action="store_true", help="bring the program to the board in the end"
    )
    parser.add_argument(
        "--seconds", type=parse_count, default=SECONDS,
        help=f"how long the program may run; {SECONDS} if not given",
    )
    parser.add_argument(
        "--tuned", metavar="FILE.db",
        help=f"records of `sterna tune --board`; MODEL{BESIDE} beside the model if not given",
    )
    add_shapes(parser)
    add_json(parser)
    add_inputs(parser)
    parser.set_defaults(run=run)


def parse_option(text: str) -> tuple[str, str]:
    """NAME=VALUE"""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"'{text}' is no NAME=VALUE")
    return name, value


def run(options: argparse.Namespace) -> int:
    """Compile, generate, build, measure and show it; then flash and run, if that is asked for."""
    expect_folder("-o", options.output)
    expect_new_project(options.output)
    expect_file("--draw", options.draw)
    if options.draw and Path(options.draw).suffix != ".svg":
        raise UsageError(f"--draw '{options.draw}': the name must end in .svg")
    if options.and_run and options.project_type != EXAMPLE:
        raise UsageError("--run is for projects of the type example_project")
    platform, board = find_board(options.board, options.platform)
    if options.layers:
        expect_counter(board, can_emulate() and options.project_type == EXAMPLE)
    chosen = _chosen(options, platform)
    expect_inputs(options)
    with tempfile.TemporaryDirectory() as name:
        with progress(options):
            with stage("import the model"):
                graph = import_model(options.model, dict(options.shape), None,
                                     for_microcontroller=True, fixed=dict(options.fix))
                expect_straight(graph[0])
            program = _compile(graph, board, options)
            inputs = read_inputs(options, _specs(program), fill=True)
            folder = Path(options.output or Path(name) / "project")
            project = _generate(chosen, platform, program, inputs, folder, Path(name))
        try:
            with progress(options):
                with stage("build the project"):
                    project.build()
                data = {**_memory(project, program, platform, board), "project": options.output}
                made, data["stack"], data["note"] = _measure(options, project, board)
                if options.map:
                    data["memory_map"] = map_rows(program.memory_map, program.kernels)
                if options.draw:
                    drawing = map_svg(program.memory_map, program.kernels, data)
                    write_aside(
                        Path(options.draw), lambda aside: aside.write_text(drawing, "utf-8")
                    )
                    tell(f"wrote {options.draw}")
                if options.layers:
                    with stage("count the instructions of kernels"):
                        data["layers"] = count_layers(project, program, board, options.seconds)
            if not options.json:
                picture = map_text(program.memory_map, program.kernels) if options.map else ""
                print(_memory_text(data, picture), flush=True)
            with progress(options):
                if options.flash:
                    project.flash()
                if options.and_run:
                    made = made or run_example(project, seconds=options.seconds)
                    data |= _agreement(made, graph, inputs)
        finally:
            project.close()
    if options.json or options.and_run:
        show(options, data, lambda: _results_text(data))
    return 0


# ---- stages ----


def _compile(graph: Graph, board: Board, options: argparse.Namespace) -> AOTProgram:
    """The network in C, under the answers of tuning records where there are such."""
    level = 3 if options.opt_level is None else options.opt_level
    target, tuned = target_of(board), is_tuned(options.model, options.tuned)
    answers = read_tuned(options.model, options.tuned, target).answers if tuned else {}
    return compile_for(*graph, board, target, level, {ANSWERS: answers})


def _specs(program: AOTProgram) -> list[TensorSpec]:
    return [
        TensorSpec(t.name, t.type.concrete_shape, str(t.type.dtype))
        for t in program.inputs
    ]


def expect_new_project(folder: str | None) -> None:
    """Refuse, before long work begins, a folder that holds something."""
    path = None if folder is None else Path(folder)
    if path is not None and path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"-o '{folder}' exists already; name a new folder")


def _chosen(options: argparse.Namespace, platform: str) -> dict[str, Any]:
    """The options of the project, which its template knows."""
    template = TemplateProject.from_directory(platform)
    try:
        chosen = _typed(dict(options.option), template.options)
        chosen |= {"board": options.board, "project_type": options.project_type}
        if options.goal:
            if not any(option.name == "goal" for option in template.options):
                raise UsageError(f"--{options.goal}: {platform} has settings of its own for that")
            chosen["goal"] = options.goal
        check_options(template.options, GENERATE, chosen)
        return chosen
    finally:
        template.close()


def _generate(
    chosen: Mapping[str, Any], platform: str, program: AOTProgram, inputs: Mapping[str, Any],
    folder: Path, scratch: Path,
) -> GeneratedProject:
    samples = scratch / "inputs.npz"
    np.savez(samples, **inputs)
    given = {"sample_inputs": str(samples)} if chosen["project_type"] == EXAMPLE else {}
    template = TemplateProject.from_directory(platform)
    try:
        with stage("make the project"):
            return template.generate_project(program, folder, {**chosen, **given})
    finally:
        template.close()


def _typed(given: Mapping[str, str], known: Sequence[ProjectOption]) -> dict[str, Any]:
    """Options from words; a list is several words in one."""
    kinds = {option.name: option.type for option in known}
    made: dict[str, Any] = dict(given)
    for name, text in given.items():
        match kinds.get(name):
            case "bool":
                if text not in ("true", "false"):
                    raise UsageError(f"--option {name}={text}: it is true or false")
                made[name] = text == "true"
            case "int":
                if not text.isdigit():
                    raise UsageError(f"--option {name}={text}: it is a number")
                made[name] = int(text)
            case "list":
                made[name] = shlex.split(text)
    return made


def _memory(
    project: GeneratedProject, program: AOTProgram, platform: str, board: Board
) -> dict[str, Any]:
    (elf,) = project.folder.glob(PROGRAMS[platform])
    made, report = read_program(elf), program.memory_report()
    flash, ram = made.stored_bytes, made.variable_bytes
    check_room(board, flash, ram, "the program")
    return {
        "board": board.name, "platform": platform, "cpu": board.cpu,
        "flash": flash, "flash_of_board": board.flash,
        "ram": ram, "ram_of_board": board.ram,
        "constants": report.constant_bytes, "arena": report.workspace_bytes,
        "input_bytes": report.input_bytes, "output_bytes": report.output_bytes,
    }


def _measure(
    options: argparse.Namespace, project: GeneratedProject, board: Board
) -> tuple[ExampleRun | None, int | None, str]:
    """What a run in an emulator gave, the stack that it took, and how that is known."""
    emulated = board.more.get("qemu") or board.more.get("emulated")
    if not emulated or "port" in dict(options.option) or options.project_type != EXAMPLE:
        return None, None, "not measured: that takes an example project and an emulator"
    if "qemu" in board.more and not can_emulate():
        return None, None, "not measured: qemu-system-arm is not installed"
    try:
        with stage("run the program in an emulator"):
            made = run_example(project, seconds=options.seconds)
    except ExampleTimeoutError:
        if options.and_run:
            raise
        return None, None, f"not measured: the program ran for more than {options.seconds} s"
    return made, made.stack_bytes, PAINTED


def _agreement(made: ExampleRun, graph: Graph, inputs: Mapping[str, Any]) -> dict[str, Any]:
    here = list(compile(graph).run(inputs).values())
    outputs = list(made.outputs.values())
    return {
        "outputs": {name: summary(array) for name, array in made.outputs.items()},
        "largest_difference": largest(differences(outputs, here)),
        "largest_number": largest(here),
    }


# ---- words ----


def _memory_text(data: Mapping[str, Any], picture: str) -> str:
    rows = [
        ("flash", data["flash"], used_of(data["flash"], data["flash_of_board"])),
        ("  of it constants", data["constants"], "weights"),
        ("RAM", data["ram"], used_of(data["ram"], data["ram_of_board"])),
        ("  of it arena", data["arena"], "intermediate results"),
        ("stack", "?" if data["stack"] is None else data["stack"], data["note"]),
    ]
    lines = [
        f"{data['board']} ({data['cpu']}, {data['platform']})", "",
        lay_out([
            ("Memory", [row[0] for row in rows]), ("Bytes", [str(row[1]) for row in rows]),
            ("", [row[2] for row in rows]),
        ]),
    ]
    if picture:
        lines += ["", picture]
    if "layers" in data:
        lines += ["", layers_text(data["layers"])]
    if data["project"]:
        lines += ["", f"the project is in {data['project']}"]
    return "\n".join(lines)


def _results_text(data: Mapping[str, Any]) -> str:
    return "\n".join([
        "", outputs_table(data["outputs"]), "",
        f"this machine's results differ by {data['largest_difference']:.1e} at most; the largest "
        f"number is {data['largest_number']:.3g}",
    ])
