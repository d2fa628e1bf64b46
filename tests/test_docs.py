"""The programs in the documentation run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT

BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = [ROOT / "docs" / name for name in ("command_line.md", "graphs.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_programs_of_a_page_run(page: Path, tmp_path: Path) -> None:
    for place, block in enumerate(BLOCK.findall(page.read_text("utf-8"))):
        done = subprocess.run(
            [sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, f"block {place} of {page.name}:\n{done.stderr}"
