"""Models in files that run on every processor of an architecture, and fast on each."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sterna import model as models
from sterna.driver.portable import LevelCode, expect_library, export_levels, levels_of
from sterna.ir.pass_context import PassContext
from sterna.model.compile_model import PRECISIONS, target_of
from sterna.model.sizes import SIZES
from sterna.support.progress import stage
from sterna.target import Target

if TYPE_CHECKING:
    from sterna.frontend.inputs import Shapes


def export_portable(
    model: Any,
    path: str | os.PathLike[str],
    target: str | Target = "native",
    shapes: "Shapes | None" = None,
    opt_level: int = 3,
    params: Mapping[str, Any] | None = None,
    precision: str = "float32",
    size: str = "fast",
    fixed: Mapping[str, Any] | None = None,
    **options: Any,
) -> list[str]:
    """Compile a model for each level of an architecture into one library; gives the levels.

    Loading picks the best that the processor runs. target names the architecture, as -mtriple, and
    "native" this machine's; the others are those of sterna.compile, options those of
    export_library.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"precision is {', '.join(PRECISIONS)}, not {precision!r}")
    if size not in SIZES:
        raise ValueError(f"size is {', '.join(SIZES)}, not {size!r}")
    expect_library(path)
    narrow = None if precision == PRECISIONS[0] else precision
    made = []
    for place, (level, wanted) in enumerate(levels_of(target_of(target))):
        with PassContext.current().at_level(opt_level, SIZES[size]):
            record = models.build_model(
                model, wanted, shapes, params, narrow, None, fixed, f"level{place}"
            )
        made.append(LevelCode(level, record.factory))
    with stage("write the file"):
        export_levels(made, path, **options)
    return [each.level.name for each in made]
