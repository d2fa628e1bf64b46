"""Networks for microcontrollers: archives and projects for firmware.

The names are loaded when they are first used: a project's server does not load the compiler.
"""

import importlib
from typing import TYPE_CHECKING, Any

from sterna.support.classic import missing

if TYPE_CHECKING:
    from sterna.micro import project_api
    from sterna.micro.firmware_sizes import Sizes, sizes
    from sterna.micro.model_library_format import (
        UnsupportedInModelLibraryFormatError,
        export_model_library_format,
    )
    from sterna.micro.module_loader import AutoTvmModuleLoader, autotvm_build_func
    from sterna.micro.project import (
        GeneratedProject,
        TemplateProject,
        generate_project,
        generate_project_from_mlf,
        get_microtvm_template_projects,
    )
    from sterna.micro.session import Session, SessionTerminatedError
    from sterna.micro.transport import Transport

_WHERE = {
    "AutoTvmModuleLoader": "module_loader",
    "GeneratedProject": "project",
    "Sizes": "firmware_sizes",
    "Session": "session",
    "SessionTerminatedError": "session",
    "TemplateProject": "project",
    "Transport": "transport",
    "autotvm_build_func": "module_loader",
    "UnsupportedInModelLibraryFormatError": "model_library_format",
    "export_model_library_format": "model_library_format",
    "generate_project": "project",
    "generate_project_from_mlf": "project",
    "get_microtvm_template_projects": "project",
    "sizes": "firmware_sizes",
}

_MODULES = ("model_library_format", "project", "project_api", "session", "transport")

__all__ = [
    "AutoTvmModuleLoader", "GeneratedProject", "Session", "SessionTerminatedError", "Sizes",
    "TemplateProject", "Transport",
    "UnsupportedInModelLibraryFormatError",
    "autotvm_build_func", "export_model_library_format", "generate_project",
    "generate_project_from_mlf", "get_microtvm_template_projects", "project_api", "sizes",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"sterna.micro.{name}")
    if name not in _WHERE:
        raise missing(f"sterna.micro.{name}", f"module 'sterna.micro' has no attribute '{name}'")
    return getattr(importlib.import_module(f"sterna.micro.{_WHERE[name]}"), name)
