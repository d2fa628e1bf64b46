"""The build backend: setuptools, which also asks for ziglang where there is no C compiler."""

from typing import Any

import compilers
from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403  (the hooks that stay as they are)

Settings = dict[str, Any] | None


def _requirements(from_setuptools: list[str]) -> list[str]:
    return [*from_setuptools, *compilers.requirements()]


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """What pip installs before it builds a wheel."""
    return _requirements(build_meta.get_requires_for_build_wheel(config_settings))


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    """What pip installs before it builds in place."""
    return _requirements(build_meta.get_requires_for_build_editable(config_settings))
