"""Broken copies of models are imported or refused, and nothing else happens."""

import random
from pathlib import Path

import onnx
import pytest

from sterna.testing.fuzz.fuzzers import importers
from sterna.testing.fuzz.runner import fuzz
from tests.frontend.test_onnx_broken import models
from tests.support import SHARED


def write_corpus(folder: Path) -> None:
    """Small models of our own, and users' where they are."""
    folder.mkdir()
    for name, model in models().items():
        onnx.save(model, folder / f"{name}.onnx")
    for place, path in enumerate(sorted((SHARED / "models" / "onnx").glob("*/*.onnx"))):
        if path.stat().st_size < importers.LARGEST:
            (folder / f"shared{place}.onnx").write_bytes(path.read_bytes())


def test_no_broken_model_crashes_or_hangs(tmp_path: Path, search_seconds: float) -> None:
    seed = random.SystemRandom().randrange(1 << 30)
    write_corpus(tmp_path / "onnx")
    (tally,) = fuzz([importers.FUZZER], search_seconds, seed, tmp_path)
    assert tally.cases > 0
    if tally.findings:
        pytest.fail(f"seed {seed}: {tally.findings[0].error}\n{tally.findings[0].program}")
