"""What the README says is true."""

import re
import subprocess
import sys
from pathlib import Path

from tests.support import ROOT, require_program
from tests.test_layering import RANKS

README = (ROOT / "README.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    """The README's code blocks in a language."""
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_example_runs_and_prints_what_it_says(tmp_path: Path) -> None:
    require_program("cc")
    (example,) = blocks("python")
    done = subprocess.run(
        [sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    said = re.findall(r"print\(.*\) +# (.*)", example)
    assert done.stdout.splitlines() == said


def test_set_up_is_two_commands_and_continuous_integration_uses_the_second() -> None:
    commands = [block.strip() for block in blocks("bash")]
    assert commands == ["pip install . && sterna demo", "pip install -e '.[test]' && pytest"]
    assert commands[1] in (ROOT / ".ci" / "run").read_text()


def test_the_map_names_every_folder_with_its_rank_and_state() -> None:
    mapped: dict[str, tuple[int, bool]] = {}
    for rank, names, state in re.findall(r"\| (\d) \| (.*?) \|.*\| ([\w ]+) \|", README):
        for name in re.findall(r"`(\w+)`", names):
            mapped[name] = (int(rank), state != "to come")
    assert {name: rank for name, (rank, _) in mapped.items()} == RANKS
    for name, (_, built) in mapped.items():
        assert (ROOT / "sterna" / name).is_dir() == built, name


def test_paths_in_the_map_exist() -> None:
    beside = README[README.index("Beside the package:") : README.index("## Adding")]
    for name in re.findall(r"`([\w./]+)`", beside):
        places = (ROOT / name, ROOT / "runtime" / name)
        assert any(place.exists() for place in places) or name in ("docs/", "sterna.c"), name
