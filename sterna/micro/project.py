"""Firmware projects: made from a template and a network, built, flashed, and talked to."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sterna.driver.aot_factory import AOTProgram
from sterna.driver.factory import GraphExecutorFactoryModule
from sterna.micro.model_library_format import export_model_library_format
from sterna.micro.platforms.boards import TEMPLATES, BoardTooSmallError
from sterna.micro.platforms.handler import Project
from sterna.micro.platforms.network import Network
from sterna.micro.platforms.options import HOST_DRIVEN
from sterna.micro.project_api.client import (
    SERVER,
    ProjectAPIClient,
    RPCError,
    instantiate_from_dir,
)
from sterna.micro.project_api.server import (
    BUILD,
    FLASH,
    GENERATE,
    OPEN,
    ProjectOption,
    ServerInfo,
    check_options,
)
from sterna.micro.transport import Transport, TransportClosedError, TransportTimeouts
from sterna.support.toolchain import CompileError, MissingToolError

Folder = str | os.PathLike[str]
Options = Mapping[str, Any]

PLATFORMS = sorted(server.parent.name for server in TEMPLATES.glob(f"*/{SERVER}"))

# Errors of a project's server that are the caller's own here.
_ERRORS: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        ValueError, BoardTooSmallError, FileExistsError, FileNotFoundError, MissingToolError,
        CompileError,
    )
}


class MicroTVMTemplateProjectNotFoundError(ValueError):
    """There is no template of that name."""


class NotATemplateProjectError(ValueError):
    """A template was expected, but the folder is a generated project."""


class TemplateProjectError(ValueError):
    """A generated project was expected, but the folder is a template."""


def get_microtvm_template_projects(platform: str) -> str:
    """The folder of the template for a platform."""
    if platform not in PLATFORMS:
        raise MicroTVMTemplateProjectNotFoundError(
            f"there is no template '{platform}'; there are {', '.join(PLATFORMS)}"
        )
    return str(TEMPLATES / platform)


def _template_folder(template: Folder) -> Path:
    """A platform by its name, or the folder of a template."""
    if isinstance(template, str) and template in PLATFORMS:
        return Path(get_microtvm_template_projects(template))
    if not Path(template).is_dir():
        raise MicroTVMTemplateProjectNotFoundError(
            f"'{os.fspath(template)}' is neither a platform ({', '.join(PLATFORMS)}) nor a folder"
        )
    return Path(template)


class _Served:
    """A folder with a server in it, which runs from here on."""

    def __init__(self, api_client: ProjectAPIClient) -> None:
        self._api_client = api_client
        self._info = api_client.server_info_query()

    def info(self) -> ServerInfo:
        """What the server says about itself: platform, options, version."""
        return self._info

    @property
    def options(self) -> list[ProjectOption]:
        """The options that its methods take."""
        return self._info.project_options

    def close(self) -> None:
        """End the server."""
        self._api_client.shutdown()

    def _call(self, method: str, options: Options | None, *before: Any) -> Any:
        given = dict(options or {})
        check_options(self.options, method, given)
        try:
            return getattr(self._api_client, method)(*before, given)
        except RPCError as error:
            known = _ERRORS.get(error.kind)
            if known is None:
                raise
            raise known(error.message) from error


class TemplateProject(_Served):
    """A template, from which projects are made."""

    def __init__(self, api_client: ProjectAPIClient) -> None:
        super().__init__(api_client)
        if not self._info.is_template:
            api_client.shutdown()
            raise NotATemplateProjectError("the folder is a generated project, not a template")

    @classmethod
    def from_directory(cls, template_project_dir: Folder) -> "TemplateProject":
        """The template in a folder, or of a platform. This runs the folder's own code."""
        return cls(instantiate_from_dir(_template_folder(template_project_dir)))

    def generate_project_from_mlf(
        self, model_library_format_path: Folder, project_dir: Folder, options: Options | None = None
    ) -> "GeneratedProject":
        """A project from an archive that export_model_library_format wrote."""
        archive, folder = Path(model_library_format_path).resolve(), Path(project_dir).absolute()
        self._call(GENERATE, _absolute(options), archive, None, folder)
        return GeneratedProject.from_directory(folder, options)

    def generate_project(
        self, module: Any, project_dir: Folder, options: Options | None = None
    ) -> "GeneratedProject":
        """A project from what relay.build gives."""
        with tempfile.TemporaryDirectory() as name:
            archive = export_model_library_format(module, Path(name) / "model.tar")
            return self.generate_project_from_mlf(archive, project_dir, options)


class GeneratedProject(_Served):
    """A project: build it, flash it, talk to what runs."""

    def __init__(self, api_client: ProjectAPIClient, options: Options | None = None) -> None:
        super().__init__(api_client)
        self._options = _absolute(options)
        if self._info.is_template:
            api_client.shutdown()
            raise TemplateProjectError("the folder is a template, not a generated project")

    @classmethod
    def from_directory(
        cls, project_dir: Folder, options: Options | None = None
    ) -> "GeneratedProject":
        """The project in a folder. This runs the folder's own code: do it where it is trusted."""
        return cls(instantiate_from_dir(project_dir), options)

    @property
    def folder(self) -> Path:
        """Where the project is."""
        return Path(self._info.model_library_format_path).parent

    def build(self, options: Options | None = None) -> None:
        """Compile it; options add to those that the project was made with."""
        self._call(BUILD, {**self._options, **_absolute(options)})

    def flash(self, options: Options | None = None) -> None:
        """Bring the program to the board."""
        self._call(FLASH, {**self._options, **_absolute(options)})

    def transport(self, options: Options | None = None) -> "ProjectTransport":
        """The byte stream to the program, which a with block opens and closes."""
        return ProjectTransport(self, {**self._options, **_absolute(options)})

    def open_transport(self, options: Options | None = None) -> "ProjectTransport":
        """The same, opened already."""
        transport = self.transport(options)
        transport.open()
        return transport


class ProjectTransport(Transport):
    """The byte stream to a project's program: QEMU's, a process's, or a serial port."""

    def __init__(self, project: GeneratedProject, options: Options) -> None:
        self._project = project
        self._options = options
        self._timeouts: TransportTimeouts | None = None

    @property
    def network(self) -> Network:
        """The network that the program runs as it is told to from here."""
        project = Project.load(self._project.folder)
        if project.project_type != HOST_DRIVEN:
            raise ValueError(
                f"'{project.folder}' is of the type {project.project_type}, which obeys no "
                f'session: generate it with the option "project_type": "{HOST_DRIVEN}"'
            )
        return project.network

    def timeouts(self) -> TransportTimeouts:
        """How long to wait for the program."""
        if self._timeouts is None:
            raise TransportClosedError
        return self._timeouts

    def open(self) -> None:
        """Start or reach the program."""
        self._timeouts = self._project._call(OPEN, self._options)

    def close(self) -> None:
        """Leave it."""
        client, self._timeouts = self._project._api_client, None
        if not client.is_shutdown:
            client.close_transport()

    def read(self, n: int, timeout_sec: float | None) -> bytes:
        """One to n bytes."""
        return self._project._api_client.read_transport(n, timeout_sec)

    def write(self, data: bytes, timeout_sec: float | None) -> None:
        """All the bytes."""
        self._project._api_client.write_transport(data, timeout_sec)


def _absolute(options: Options | None) -> dict[str, Any]:
    """Options whose paths mean the same in the server's folder."""
    paths = ("cmsis_path", "extra_files_tar", "sample_inputs")
    given = dict(options or {})
    for name in paths:
        if isinstance(given.get(name), str | os.PathLike):
            given[name] = str(Path(given[name]).absolute())
    return given


def generate_project(
    template_project_dir: Folder | None = None,
    module: GraphExecutorFactoryModule | AOTProgram | None = None,
    generated_project_dir: Folder | None = None,
    options: Options | None = None,
    *,
    template_dir: Folder | None = None,
) -> GeneratedProject:
    """A project for a network, from a template: a platform's name, or a folder.

    template_dir is another name of template_project_dir.
    """
    template = template_project_dir if template_project_dir is not None else template_dir
    given = {"template_project_dir": template, "module": module,
             "generated_project_dir": generated_project_dir}
    if template_project_dir is not None and template_dir is not None:
        raise TypeError("template_dir is another name of template_project_dir: give one of them")
    missing = [name for name, value in given.items() if value is None]
    if missing or template is None or generated_project_dir is None:
        raise TypeError(f"generate_project needs {', '.join(missing)}")
    source = TemplateProject.from_directory(template)
    try:
        return source.generate_project(module, generated_project_dir, options)
    finally:
        source.close()


def generate_project_from_mlf(
    template_project_dir: Folder, project_dir: Folder, mlf: Folder, options: Options | None = None
) -> GeneratedProject:
    """A project from a template and an archive that export_model_library_format wrote."""
    source = TemplateProject.from_directory(template_project_dir)
    try:
        return source.generate_project_from_mlf(mlf, project_dir, options)
    finally:
        source.close()
