"""What the servers of all platforms have in common."""

import abc
import json
import shutil
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sterna.micro.platforms.boards import TEMPLATES, Board
from sterna.micro.platforms.network import (
    Network,
    model_source,
    sample_inputs,
    unpack_network,
)
from sterna.micro.platforms.options import EXAMPLE, HOST_DRIVEN
from sterna.micro.platforms.streams import Stream
from sterna.micro.project_api.server import (
    BUILD,
    FLASH,
    GENERATE,
    OPEN,
    ProjectAPIHandler,
    ProjectOption,
    ServerInfo,
    TransportClosedError,
    TransportTimeouts,
    check_options,
)

ARCHIVE, DESCRIPTION, SERVER = "model.tar", "project.json", "microtvm_api_server.py"
PROGRAMS = {EXAMPLE: "example.c", HOST_DRIVEN: "host_driven.c"}


@dataclass(frozen=True, slots=True)
class Project:
    """A generated project, as its project.json says."""

    folder: Path
    name: str
    board: str | None
    project_type: str
    options: dict[str, Any]
    network: Network

    @classmethod
    def load(cls, folder: Path) -> "Project":
        """The project in a folder."""
        path = folder / DESCRIPTION
        try:
            data = json.loads(path.read_text("utf-8"))
            options = data["options"]
            return cls(folder, data["name"], options.get("board"), options["project_type"], options,
                       Network.from_json(data["network"]))
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise ValueError(
                f"'{path}' is no project's description ({error!r}); generate the project anew"
            ) from None

    @property
    def sources(self) -> Path:
        """The folder of all that is compiled."""
        return self.folder / "src"

    @property
    def build_folder(self) -> Path:
        """The folder of what came of it."""
        return self.folder / "build"

    def source_files(self) -> list[str]:
        """The files of C, as they are named in the project's folder."""
        return sorted(str(path.relative_to(self.folder)) for path in self.sources.rglob("*.c"))

    def built(self, program: str) -> Path:
        """The program; a project that was not built has none."""
        path = self.folder / program
        if not path.is_file():
            raise ValueError(f"'{self.folder}' is not built yet; call build() first")
        return path



class FirmwareHandler(ProjectAPIHandler):
    """The server of a template, or of a project that was generated from it."""

    platform: str
    """What the platform is called, and its template's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stream: Stream | None = None

    # ---- what a platform says and does ----

    @abc.abstractmethod
    def known_options(self) -> list[ProjectOption]:
        """Its options."""

    @abc.abstractmethod
    def known_boards(self) -> dict[str, Board]:
        """Its boards."""

    def fill(self, project: Project) -> None:
        """Add what only this platform has to a project."""

    @abc.abstractmethod
    def compile(self, project: Project, options: dict[str, Any]) -> None:
        """Make the program."""

    @abc.abstractmethod
    def load(self, project: Project, options: dict[str, Any]) -> None:
        """Bring the program to the board."""

    @abc.abstractmethod
    def connect(self, project: Project, options: dict[str, Any]) -> Stream:
        """Reach the running program."""

    # ---- the interface of projects ----

    @property
    def is_template(self) -> bool:
        """Whether this makes projects, rather than being one."""
        return not (self.folder / DESCRIPTION).is_file()

    def server_info_query(self, tvm_version: str) -> ServerInfo:
        """What this is."""
        path = "" if self.is_template else str(self.folder / ARCHIVE)
        return ServerInfo(self.platform, self.is_template, path, self.known_options())

    def generate_project(
        self, model_library_format_path: Path, standalone_crt_dir: Path | None,
        project_dir: Path, options: dict[str, Any],
    ) -> None:
        """Make a project: whole, or not at all."""
        if not self.is_template:
            raise ValueError(f"'{self.folder}' is a project, not a template for projects")
        if project_dir.exists() and (not project_dir.is_dir() or any(project_dir.iterdir())):
            raise FileExistsError(f"'{project_dir}' exists already; name a new folder")
        used = check_options(self.known_options(), GENERATE, options)
        project_dir.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".generate", dir=project_dir.parent) as name:
            made = Path(name) / "project"
            self._write(made, project_dir.name, model_library_format_path, used)
            if project_dir.exists():
                project_dir.rmdir()
            made.rename(project_dir)

    def build(self, options: dict[str, Any]) -> None:
        """Compile the project."""
        project, used = self._project(BUILD, options)
        project.build_folder.mkdir(exist_ok=True)
        self.compile(project, used)

    def flash(self, options: dict[str, Any]) -> None:
        """Bring the program to the board."""
        self.load(*self._project(FLASH, options))

    def open_transport(self, options: dict[str, Any]) -> TransportTimeouts:
        """Reach the running program."""
        if self._stream is not None:
            raise ValueError("the transport is open already")
        self._stream = self.connect(*self._project(OPEN, options))
        return TransportTimeouts()

    def close_transport(self) -> None:
        """Leave it."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def read_transport(self, n: int, timeout_sec: float | None) -> bytes:
        """What the program says."""
        return self._opened().read(n, timeout_sec)

    def write_transport(self, data: bytes, timeout_sec: float | None) -> None:
        """What it is told."""
        self._opened().write(data, timeout_sec)

    # ---- parts ----

    def _opened(self) -> Stream:
        if self._stream is None:
            raise TransportClosedError
        return self._stream

    def _project(self, method: str, options: dict[str, Any]) -> tuple[Project, dict[str, Any]]:
        if self.is_template:
            raise ValueError(f"'{self.folder}' is a template; {method} is for projects made of it")
        project = Project.load(self.folder)
        return project, check_options(self.known_options(), method, {**project.options, **options})

    def _write(self, folder: Path, name: str, archive: Path, options: dict[str, Any]) -> None:
        sources = folder / "src"
        sources.mkdir(parents=True)
        network = unpack_network(archive, sources)
        project_type = options["project_type"]
        samples = None
        if project_type == EXAMPLE:
            samples = sample_inputs(network, options["sample_inputs"])
        (sources / "model.c").write_text(model_source(network, samples), "utf-8")
        common = TEMPLATES / "common" / "src"
        for file in (*sorted(common.glob("*.h")), common / PROGRAMS[project_type]):
            shutil.copyfile(file, sources / file.name)
        shutil.copyfile(archive, folder / ARCHIVE)
        shutil.copyfile(self.folder / SERVER, folder / SERVER)
        if options["extra_files_tar"] is not None:
            _unpack_extra(options["extra_files_tar"], sources)
        description = {"platform": self.platform, "name": name, "options": options,
                       "network": network.to_json()}
        text = json.dumps(description, indent=2, sort_keys=True)
        (folder / DESCRIPTION).write_text(f"{text}\n", "utf-8")
        self.fill(Project(folder, name, options.get("board"), project_type, options, network))

    def copy(self, project: Project, files: Sequence[str]) -> None:
        """Put files of the template into the project, each in the folder that it had there."""
        for name in files:
            (project.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.folder / name, project.folder / name)


def compiler_flags(options: dict[str, Any]) -> list[str]:
    """What the options say to the compiler."""
    folders = [f"-I{path}" for path in _cmsis_folders(options["cmsis_path"])]
    errors = ["-Werror"] if options["warning_as_error"] else []
    return [*errors, *map(str, options["compile_definitions"]), *folders]


def _unpack_extra(archive: str, folder: Path) -> None:
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
    except (OSError, tarfile.TarError) as error:
        raise ValueError(f"extra_files_tar '{archive}' cannot be unpacked: {error}") from None


def _cmsis_folders(path: str | None) -> list[Path]:
    if path is None:
        return []
    folder = Path(path).resolve()
    if not folder.is_dir():
        raise ValueError(f"cmsis_path '{path}' is no folder")
    parts = [folder / "CMSIS" / part / "Include" for part in ("Core", "DSP", "NN")]
    return [part for part in parts if part.is_dir()] or [folder]
