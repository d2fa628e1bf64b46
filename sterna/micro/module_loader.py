"""How AutoTVM's runners reach a board: the template of a project, and its options."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sterna.micro.platforms.boards import find_board
from sterna.micro.project import get_microtvm_template_projects

MODEL_LIBRARY_FORMAT = ".model_library_format"


class AutoTvmModuleLoader:
    """Candidates become projects of a template, for the board that its options name.

    LocalRunner(module_loader=AutoTvmModuleLoader("baremetal", {"board": "mps2_an386"})) counts the
    instructions of layers on it. Without a board candidates run on this machine.
    """

    def __init__(
        self, template_project_dir: str | os.PathLike[str],
        project_options: Mapping[str, Any] | None = None, project_dir: Any = None,
    ) -> None:
        options = dict(project_options or {})
        given = os.fspath(template_project_dir)
        self.template = given if Path(given).is_dir() else get_microtvm_template_projects(given)
        self.board: str | None = options.get("board")
        if self.board is not None:
            find_board(self.board)


class _BuildFunction:
    """What builders are told for boards; networks are built as firmware whatever it says."""

    output_format = MODEL_LIBRARY_FORMAT


autotvm_build_func = _BuildFunction()
