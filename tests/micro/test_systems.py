"""Projects for Zephyr and Arduino: what a plain compiler can say about them, and their tools."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import sterna as tvm
from sterna import micro, relay
from sterna.micro.firmware import target_of
from sterna.micro.platforms.arduino import find_ports
from sterna.micro.platforms.boards import TEMPLATES, Board, load_boards
from sterna.micro.platforms.streams import TtyStream
from sterna.micro.project_api.server import IoTimeoutError
from tests.micro.networks import build, mixed
from tests.schedule.test_halves import WINDOWS, layer
from tests.support import require_program

STRICT = ["-Wall", "-Wextra", "-Werror", "-O1"]

# As much of the systems' headers as the projects use.
KERNEL = """
#include <stddef.h>
#include <stdint.h>
int64_t k_uptime_ticks(void);
uint64_t k_ticks_to_ns_floor64(uint64_t ticks);
typedef struct k_thread *k_tid_t;
k_tid_t k_current_get(void);
int k_thread_stack_space_get(const struct k_thread *thread, size_t *unused);
"""
DEVICE = """
struct device;
extern const struct device console;
#define DT_CHOSEN(name) name
#define DEVICE_DT_GET(name) (&console)
"""
UART = """
void uart_poll_out(const struct device *line, unsigned char byte);
int uart_poll_in(const struct device *line, unsigned char *byte);
"""
PRINTK = "void printk(const char *format, ...);\n"
ARDUINO = """
#include <stddef.h>
#include <stdint.h>
struct Line {
  void begin(unsigned long baud);
  void print(const char *text);
  size_t write(const uint8_t *bytes, size_t size);
  void flush();
  int available();
  int read();
  operator bool();
};
extern Line Serial;
unsigned long micros();
"""


@pytest.fixture(scope="module")
def program() -> Any:
    return build(mixed())


def generate(
    template: str, board: str, project_type: str, program: Any, folder: Path
) -> micro.GeneratedProject:
    options = {"board": board, "project_type": project_type}
    return micro.generate_project(template, program, folder, options)


def compile_all(folder: Path, language: list[str], files: list[Path], flags: list[str]) -> None:
    for file in files:
        done = subprocess.run(
            [*language, *STRICT, *flags, "-c", str(file), "-o", str(folder / "made.o")],
            capture_output=True, text=True, check=False,
        )
        assert done.returncode == 0, done.stderr


def write_zephyr(folder: Path) -> list[str]:
    """Headers of Zephyr, and the flags that its build would give."""
    for name, text in (("kernel.h", KERNEL), ("device.h", DEVICE), ("drivers/uart.h", UART),
                       ("sys/printk.h", PRINTK)):
        path = folder / "zephyr" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return [f"-I{folder}", "-DCONFIG_MAIN_STACK_SIZE=4096"]


def compile_sketch(tmp_path: Path, folder: Path, compiler: list[str], flags: list[str]) -> None:
    """An Arduino sketch."""
    (tmp_path / "Arduino.h").write_text(ARDUINO)
    compile_all(tmp_path, [*compiler, "-std=gnu++14", "-x", "c++"], [folder / f"{folder.name}.ino"],
                ["-include", str(tmp_path / "Arduino.h"), *flags])


@pytest.mark.parametrize("project_type", ["example_project", "host_driven"])
def test_zephyr(project_type: str, program: Any, tmp_path: Path) -> None:
    gcc, flags = require_program("gcc"), write_zephyr(tmp_path)
    folder = tmp_path / "project"
    generate("zephyr", "nucleo_l4r5zi", project_type, program, folder).close()
    compile_all(tmp_path, [gcc, "-std=gnu11"], sorted((folder / "src").glob("*.c")), flags)
    settings = (folder / "prj.conf").read_text()
    assert "CONFIG_MAIN_STACK_SIZE=8192\n" in settings and "CONFIG_FPU=y\n" in settings
    assert "project(sterna_default C)" in (folder / "CMakeLists.txt").read_text()


@pytest.mark.parametrize("project_type", ["example_project", "host_driven"])
def test_arduino(project_type: str, program: Any, tmp_path: Path) -> None:
    gcc, gxx = require_program("gcc"), require_program("g++")
    folder = tmp_path / "wings"
    generate("arduino", "nano33ble", project_type, program, folder).close()
    compile_all(tmp_path, [gcc, "-std=gnu11"], sorted((folder / "src").glob("*.c")), [])
    compile_sketch(tmp_path, folder, [gxx], [])


def boards_by_processor(platform: str) -> list[Board]:
    """A board of each of Arm's processors that a system has."""
    found = {board.cpu: board for board in load_boards(TEMPLATES / platform).values()}
    return [found[cpu] for cpu in sorted(found) if cpu.startswith("cortex-")]


@pytest.mark.parametrize(("platform", "board"), [
    (platform, board) for platform in ("zephyr", "arduino")
    for board in boards_by_processor(platform)
], ids=lambda given: given.cpu if isinstance(given, Board) else given)
def test_boards_processors(platform: str, board: Board, tmp_path: Path) -> None:
    """Layers by each processor's own instructions compile as the systems compile them."""
    gcc = require_program("arm-none-eabi-gcc")
    layers = [layer(name, f"x{number}")[0] for number, name in enumerate(WINDOWS)]
    module = tvm.IRModule.from_expr(relay.Tuple((*layers, *_fields(mixed()))))
    folder = tmp_path / "wings"
    generate(platform, board.name, "example_project", build(module, target_of(board)),
             folder).close()
    processor = [f"-mcpu={board.cpu}", "-mthumb"]
    flags = write_zephyr(tmp_path) if platform == "zephyr" else []
    for level in ("-Os", "-O0"):
        compile_all(tmp_path, [gcc, "-std=gnu11", *processor],
                    sorted((folder / "src").glob("*.c")), [*flags, level])
    if platform == "arduino":
        gxx = require_program("arm-none-eabi-g++")
        compile_sketch(tmp_path, folder, [gxx, *processor], ["-Os", "-fno-exceptions"])


def _fields(module: tvm.IRModule) -> Any:
    body = module["main"].body
    assert isinstance(body, relay.Tuple)
    return body.fields


RECORD = """#!/bin/sh
echo "$(basename "$0") $*" >> "{log}"
case "$1 $2" in
  "build -b") mkdir -p build/zephyr && touch build/zephyr/zephyr.elf ;;
  "build -d") printf 'output 0 int8[1] y\\n0x05 5\\nstack 0\\ndone\\n' ;;
  "board list") echo '[{{"matching_boards": [{{"fqbn": "arduino:mbed_nano:nano33ble"}}],
                      "port": {{"address": "/dev/ttyTern0"}}}}]' ;;
esac
"""


def stand_in(folder: Path, name: str) -> tuple[str, Path]:
    """A program that notes what it is asked for."""
    log, script = folder / "log", folder / name
    script.write_text(RECORD.format(log=log))
    script.chmod(0o755)
    return str(script), log


def test_west_is_asked(program: Any, tmp_path: Path) -> None:
    west, log = stand_in(tmp_path, "west")
    project = generate("zephyr", "mps2_an386", "example_project", program, tmp_path / "project")
    with pytest.raises(ValueError, match="not built yet"):
        project.flash({"west_cmd": west})
    project.build({"west_cmd": west})
    project.flash({"west_cmd": west})
    with project.transport({"west_cmd": west}) as stream:
        assert stream.read_exactly(8, 10.0) == b"output 0"
    project.close()
    assert log.read_text().splitlines() == [
        "west build -b mps2/an386 -d build .", "west build -d build -t run"
    ]
    real = generate("zephyr", "nucleo_f746zg", "example_project", program, tmp_path / "real")
    real.build({"west_cmd": west})
    real.flash({"west_cmd": west})
    assert log.read_text().splitlines()[-1] == "west flash -d build"
    with pytest.raises(ValueError, match="nucleo_f746zg is a real board: name its serial port"):
        real.open_transport({"west_cmd": west})
    real.close()


def test_arduino_cli_is_asked(program: Any, tmp_path: Path) -> None:
    cli, log = stand_in(tmp_path, "arduino-cli")
    project = generate("arduino", "nano33ble", "example_project", program, tmp_path / "wings")
    options = {"arduino_cli_cmd": cli}
    project.build({**options, "compile_definitions": ["-DN=1"]})
    project.flash(options)
    with pytest.raises(FileNotFoundError, match="/dev/ttyTern0"):
        project.open_transport(options)
    with pytest.raises(ValueError, match="0 ports have a nano33ble; name one"):
        project.flash({**options, "serial_number": "7"})
    project.close()
    build, listing, upload, *_ = log.read_text().splitlines()
    assert build == (
        "arduino-cli compile --fqbn arduino:mbed_nano:nano33ble --build-path build "
        "--build-property compiler.c.extra_flags=-O2 -DN=1 ."
    )
    assert listing == "arduino-cli board list --format json"
    assert upload == (
        "arduino-cli upload --fqbn arduino:mbed_nano:nano33ble --input-dir build --port "
        "/dev/ttyTern0 ."
    )


def test_ports_of_boards() -> None:
    rows = [{"matching_boards": [{"fqbn": "a:b:c"}], "port": {"address": "p", "hardware_id": "1"}},
            {"matching_boards": [{"fqbn": "a:b:c"}], "port": {"address": "q", "hardware_id": "2"}},
            {"port": {"address": "r"}}]
    for listed in (json.dumps(rows), json.dumps({"detected_ports": rows})):
        assert find_ports(listed, "a:b:c", None) == ["p", "q"]
        assert find_ports(listed, "a:b:c", "2") == ["q"]
        assert find_ports(listed, "a:b:d", None) == []
    for wrong in ("", "7", '[{"port": 3}]'):
        with pytest.raises(ValueError, match="name the board's port"):
            find_ports(wrong, "a:b:c", None)


def test_a_serial_port(tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    with pytest.raises(ValueError, match="baud 7: a port runs at 50, 75"):
        TtyStream(os.ttyname(theirs), 7)
    port = TtyStream(os.ttyname(theirs), 115200)
    os.write(ours, b"\x00\r\n\x03\xff")
    assert port.read(99, 5.0) == b"\x00\r\n\x03\xff"
    with pytest.raises(IoTimeoutError, match=r"within 0\.01 s"):
        port.read(1, 0.01)
    port.write(b"\n\x04\xfe", 5.0)
    assert os.read(ours, 99) == b"\n\x04\xfe"
    with pytest.raises(IoTimeoutError, match="could not be sent"):
        port.write(bytes(1 << 20), 0.05)
    port.close()
    os.close(ours)
    os.close(theirs)
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="is no serial port"):
        TtyStream(str(tmp_path / "file"), 115200)


@pytest.mark.parametrize("platform", ["arduino", "baremetal", "zephyr"])
def test_every_board_is_described(platform: str) -> None:
    boards = load_boards(TEMPLATES / platform)
    for board in boards.values():
        assert board.cpu and board.flash > 10_000 and board.ram > 10_000, board.name
