"""Projects for microcontrollers, for tvmc: create, build, flash."""

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sterna import micro
from sterna.contrib.tvmc.model import TVMCException
from sterna.micro.project import PLATFORMS
from sterna.micro.project_api.client import SERVER
from sterna.micro.project_api.server import ProjectOption

TEMPLATE = "template"


def add_micro(parser: argparse.ArgumentParser) -> None:
    """tvmc micro create, build and flash."""
    commands = parser.add_subparsers(title="commands", dest="micro command", required=True)
    for name, what in (("create", "a project from an archive in Model Library Format"),
                       ("build", "build a project"), ("flash", "bring it to its board")):
        command = commands.add_parser(name, help=what)
        command.add_argument("project_dir", help="the project's folder")
        if name == "create":
            command.add_argument("MLF", help="what compile --output-format mlf wrote")
        command.add_argument("platform", choices=(*PLATFORMS, TEMPLATE))
        command.add_argument("-d", "--template-dir", help=f"the folder of the {TEMPLATE}")
        command.add_argument("-f", "--force", action="store_true",
                             help="in place of what is there")
        add_project_option(command)
        command.set_defaults(function=_create if name == "create" else _handle, method=name)


def add_project_option(parser: argparse.ArgumentParser) -> None:
    """--project-option NAME=VALUE NAME=VALUE, which may be repeated."""
    parser.add_argument(
        "--project-option", nargs="+", action="extend", default=[], metavar="NAME=VALUE"
    )


def _create(options: argparse.Namespace) -> None:
    template = options.template_dir if options.platform == TEMPLATE else options.platform
    if template is None:
        raise TVMCException(f"the platform {TEMPLATE} takes --template-dir FOLDER")
    if not Path(options.MLF).is_file():
        raise TVMCException(f"there is no archive {options.MLF}")
    source = micro.TemplateProject.from_directory(template)
    try:
        given = typed_options(options.project_option, source.options)
        if options.force and (Path(options.project_dir) / SERVER).is_file():
            shutil.rmtree(options.project_dir)  # a project, and not any folder
        source.generate_project_from_mlf(options.MLF, options.project_dir, given).close()
    finally:
        source.close()


def _handle(options: argparse.Namespace) -> None:
    project = micro.GeneratedProject.from_directory(options.project_dir)
    try:
        given = typed_options(options.project_option, project.info().project_options)
        getattr(project, options.method)(given)
    finally:
        project.close()


def typed_options(words: Sequence[str], known: Sequence[ProjectOption]) -> dict[str, Any]:
    """NAME=VALUE as a project's options take them: truths, lists and texts."""
    kinds = {option.name: option.type for option in known}
    made: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name not in kinds:
            raise TVMCException(
                f"--project-option {word}: it is NAME=VALUE, the name one of {', '.join(kinds)}"
            )
        truths = {"true": True, "1": True, "false": False, "0": False}
        made[name] = (truths.get(value.lower(), value) if kinds[name] == "bool"
                      else value.split(",") if kinds[name] == "list"
                      else int(value) if kinds[name] == "int" and value.isdecimal() else value)
    return made

