"""Arduino boards: a sketch that arduino-cli builds and uploads."""

import json
import shutil
import subprocess
from typing import Any

from sterna.micro.platforms.boards import Board, load_boards
from sterna.micro.platforms.handler import FirmwareHandler, Project, compiler_flags
from sterna.micro.platforms.options import common_options
from sterna.micro.platforms.streams import Stream, TtyStream
from sterna.micro.platforms.tools import require_tool, run_tool
from sterna.micro.project_api.server import BUILD, FLASH, OPEN, ProjectOption

BAUD = 115200
SECONDS = 30.0
CLI = (
    "get it from arduino.github.io/arduino-cli, install the board's core with `arduino-cli core "
    "install`, or name it with the option arduino_cli_cmd"
)


class ArduinoHandler(FirmwareHandler):
    """The template arduino, and projects made of it."""

    platform = "arduino"

    def known_boards(self) -> dict[str, Board]:
        """Those of boards.json."""
        return load_boards(self.folder)

    def known_options(self) -> list[ProjectOption]:
        """Those of all platforms, arduino-cli, and where the board is."""
        return [
            *common_options(self.known_boards()),
            ProjectOption(
                "arduino_cli_cmd", "Arduino's tool", default="arduino-cli",
                optional=[BUILD, FLASH, OPEN],
            ),
            ProjectOption(
                "port", "the board's serial port, such as /dev/ttyACM0; found if not given",
                optional=[FLASH, OPEN],
            ),
            ProjectOption(
                "serial_number", "the board's serial number, where several are plugged in",
                optional=[FLASH, OPEN],
            ),
        ]

    def fill(self, project: Project) -> None:
        """A sketch, which is named as its folder is."""
        self.copy(project, ["boards.json"])
        shutil.copyfile(self.folder / "project.ino", project.folder / f"{project.name}.ino")

    def compile(self, project: Project, options: dict[str, Any]) -> None:
        """Let arduino-cli build it."""
        flags = " ".join(["-O2", *compiler_flags(options)])
        run_tool(
            [self._cli(options), "compile", "--fqbn", self._fqbn(project), "--build-path", "build",
             "--build-property", f"compiler.c.extra_flags={flags}", "."],
            project.folder, options["verbose"],
        )

    def load(self, project: Project, options: dict[str, Any]) -> None:
        """Let arduino-cli upload it."""
        cli = self._cli(options)
        run_tool(
            [cli, "upload", "--fqbn", self._fqbn(project), "--input-dir", "build", "--port",
             self._port(project, options), "."],
            project.folder, options["verbose"],
        )

    def connect(self, project: Project, options: dict[str, Any]) -> Stream:
        """The board's serial port."""
        return TtyStream(self._port(project, options), BAUD)

    def _fqbn(self, project: Project) -> str:
        return str(self.known_boards()[str(project.board)].more["fqbn"])

    def _cli(self, options: dict[str, Any]) -> str:
        return require_tool(options["arduino_cli_cmd"], CLI)

    def _port(self, project: Project, options: dict[str, Any]) -> str:
        if options["port"] is not None:
            return str(options["port"])
        done = subprocess.run(
            [self._cli(options), "board", "list", "--format", "json"], capture_output=True,
            text=True, timeout=SECONDS, check=False, stdin=subprocess.DEVNULL,
        )
        ports = find_ports(done.stdout, self._fqbn(project), options["serial_number"])
        if len(ports) != 1:
            raise ValueError(
                f"{len(ports)} ports have a {project.board}{': ' if ports else ''}"
                f"{', '.join(ports)}; name one with the option port, or serial_number"
            )
        return ports[0]


def find_ports(listed: str, fqbn: str, serial_number: str | None) -> list[str]:
    """The ports, in what `arduino-cli board list` prints, that have a board."""
    try:
        data = json.loads(listed)
        rows = data["detected_ports"] if isinstance(data, dict) else data
        found = []
        for row in rows:
            boards = [board.get("fqbn") for board in row.get("matching_boards", [])]
            number = row["port"].get("hardware_id") or row["port"].get("properties", {}).get(
                "serialNumber"
            )
            if number == serial_number if serial_number else fqbn in boards:
                found.append(str(row["port"]["address"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(
            "arduino-cli lists boards in a way that is not known; name the board's port with the "
            "option port"
        ) from None
    return found
