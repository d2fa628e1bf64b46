"""Broken copies of models are imported or refused, and nothing else happens."""

import random
import shutil
import subprocess
import sys
from pathlib import Path

import onnx
import onnx.backend.test
import pytest

from tests.frontend.test_onnx_broken import models
from tests.support import ROOT, SHARED


def corpus(folder: Path) -> list[Path]:
    """Small models of our own, those that come with ONNX, and users' where they are."""
    made = []
    for name, model in models().items():
        made.append(folder / f"{name}.onnx")
        onnx.save(model, made[-1])
    data = Path(next(iter(onnx.backend.test.__path__))) / "data"
    found = [*data.glob("*/*/model.onnx"), *(SHARED / "models" / "onnx").glob("*/*.onnx")]
    return 4 * made + sorted(path for path in found if path.stat().st_size < 400_000)


def test_no_broken_model_crashes_or_hangs(tmp_path: Path, search_seconds: float) -> None:
    seed = random.SystemRandom().randrange(1 << 30)
    print(f"seed {seed}")
    paths = [str(path) for path in corpus(tmp_path)]
    command = [sys.executable, "-m", "tests.frontend.fuzz_onnx", str(seed), str(search_seconds)]
    try:
        done = subprocess.run(
            [*command, str(tmp_path), *paths], cwd=ROOT, capture_output=True, text=True,
            timeout=search_seconds + 120, check=False,
        )
        ending, said = done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired as error:
        ending, said = -1, str(error)
    if ending:
        kept = shutil.copy(tmp_path / "broken.onnx", Path(tmp_path.parent) / f"broken_{seed}.onnx")
        pytest.fail(f"seed {seed}: importing {kept} ended with {ending}:\n{said[-4000:]}")
