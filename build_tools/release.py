"""Builds everything that a release consists of, and checks it: python build_tools/release.py

An sdist, a wheel for each platform (and for each interpreter that is named), SHA-256 sums, an SBOM
and the notes from the changelog. Two builds of one commit have the same bytes, so that a run that
was cut short goes on with what it has made. Wheels for this machine are installed and tried where
no compiler is found; those for others are inspected.
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

import platforms
from wheel_check import check_wheel

ROOT = Path(__file__).resolve().parent.parent
TRY_IT = """
import numpy as np, sterna as tvm
from sterna import te
a = te.placeholder((8,), name="a")
b = te.compute((8,), lambda i: te.exp(a[i]), name="b")
built = tvm.build(te.create_schedule(b.op), [a, b], "llvm")
out = np.zeros(8, "float32")
built(np.ones(8, "float32"), out)
assert abs(out - np.e).max() < 1e-6
built.export_library("model.so")
tvm.runtime.load_module("model.so")
"""


def main() -> None:
    """Build, check and describe a release."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    parser.add_argument("--platform", action="append", choices=[str(n) for n in platforms.OTHERS],
                        help="build for this one only; may be repeated")
    parser.add_argument("--python", action="append", default=[], metavar="PROGRAM",
                        help="another interpreter to build for, with its headers and ziglang")
    args = parser.parse_args()
    forget_other_commits(args.output)
    made = build(args.output, args.platform or [str(n) for n in platforms.OTHERS],
                 [sys.executable, *args.python])
    wrong = [f"{path.name}: {each}" for path in made if path.suffix == ".whl"
             for each in check_wheel(path)]
    if wrong:
        sys.exit("\n".join(wrong))
    for path in made:
        python = interpreter_of(path, [sys.executable, *args.python])
        if python is not None:
            try_wheel(path, python)
            print(f"{path.name}: installed and tried without a compiler")
    describe(args.output, made, version())


def forget_other_commits(output: Path) -> None:
    """Remove what an earlier run has made of another commit."""
    output.mkdir(parents=True, exist_ok=True)
    told = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, check=True, capture_output=True,
                          text=True).stdout
    note = output / "COMMIT"
    if not note.is_file() or note.read_text() != told:
        for path in [*output.glob("sterna-*.whl"), *output.glob("sterna-*.tar.gz")]:
            path.unlink()
        note.write_text(told)


def version() -> str:
    """The version that this commit has."""
    found = re.search(r'^__version__ = "(.+)"$', (ROOT / "sterna" / "version.py").read_text(),
                      re.MULTILINE)
    assert found is not None
    return found[1]


def build(output: Path, names: list[str], interpreters: list[str]) -> list[Path]:
    """The sdist, and a wheel of each interpreter for each platform, unless they are there."""
    with tempfile.TemporaryDirectory(prefix="release-") as scratch:
        source = Path(scratch) / "source"
        source.mkdir()
        archive = subprocess.run(
            ["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True
        ).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(source, filter="data")
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(commit_time()),
                       "PYTHONPATH": str(source / "build_tools"),
                       "DIST_EXTRA_CONFIG": str(one_folder(Path(scratch)))}
        sdist = output / f"sterna-{version()}.tar.gz"
        if not sdist.is_file():
            made = build_one(source, "sdist", sys.executable, environment, Path(scratch))
            write_whole(sdist, without_times(made.read_bytes()))
        wheels = []
        for python in interpreters:
            tag = tag_of(python)
            for name in names:
                wheels.append(output / f"sterna-{version()}-{tag}-{tag}-{name}.whl")
                if not wheels[-1].is_file():
                    wanted = {**environment, platforms.VARIABLE: name}
                    made = build_one(source, "wheel", python, wanted, Path(scratch))
                    assert made.name == wheels[-1].name
                    write_whole(wheels[-1], made.read_bytes())
                    print(f"built {made.name}", flush=True)
    return [sdist, *wheels]


def one_folder(scratch: Path) -> Path:
    """Settings of setuptools by which every interpreter builds in folders of the same names.

    ziglang keeps what it compiled by the names of sources, and all interpreters need one runtime.
    """
    settings = scratch / "setup.cfg"
    settings.write_text("[build]\nbuild_lib = build/lib\nbuild_temp = build/temp\n")
    return settings


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that is there as a whole or not at all."""
    aside = path.with_suffix(".part")
    aside.write_bytes(content)
    aside.replace(path)


def build_one(
    source: Path, kind: str, python: str, environment: dict[str, str], output: Path
) -> Path:
    """An sdist or a wheel."""
    subprocess.run(["rm", "-rf", str(source / "build")], check=True)
    code = f"import sys, backend; print(backend.build_{kind}(sys.argv[1]))"
    done = subprocess.run(
        [python, "-c", code, str(output.resolve())], cwd=source, env=environment,
        capture_output=True, text=True,
    )
    if done.returncode:
        sys.exit(f"building the {kind} by {python} failed:\n{done.stdout[-2000:]}\n"
                 f"{done.stderr[-4000:]}")
    return output / done.stdout.splitlines()[-1]


def commit_time() -> int:
    """When the commit was made, which is the time of all files."""
    told = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, check=True,
                          capture_output=True, text=True).stdout
    return int(told)


def without_times(archive: bytes) -> bytes:
    """An sdist whose members have the commit's time and no owner, in order."""
    out = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(archive)) as old, gzip.GzipFile(
        fileobj=out, mode="wb", mtime=0
    ) as packed, tarfile.open(fileobj=packed, mode="w") as new:
        for member in sorted(old.getmembers(), key=lambda each: each.name):
            member.mtime, member.uid, member.gid = commit_time(), 0, 0
            member.uname = member.gname = ""
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    return out.getvalue()


def interpreter_of(path: Path, interpreters: list[str]) -> str | None:
    """The one of some interpreters that a wheel is for; None: it is for none or another machine."""
    wanted = platforms.OTHERS.get(path.stem.rsplit("-", 1)[-1])
    here = sys.platform, os.uname().machine
    if path.suffix != ".whl" or wanted is None or (wanted.system, wanted.machine) != here:
        return None
    return next((each for each in interpreters if f"-{tag_of(each)}-" in path.name), None)


def tag_of(interpreter: str) -> str:
    """cp311"""
    code = "import sys; print('cp%d%d' % sys.version_info[:2])"
    return subprocess.run([interpreter, "-c", code], check=True, capture_output=True,
                          text=True).stdout.strip()


def try_wheel(path: Path, interpreter: str) -> None:
    """Install a wheel into an environment of its own, and use it with no compiler to be found."""
    with tempfile.TemporaryDirectory(prefix="try-") as scratch:
        folder = Path(scratch)
        subprocess.run([interpreter, "-m", "venv", str(folder / "env")], check=True)
        python = folder / "env" / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "-q", str(path.resolve()), "ziglang"],
                       check=True)
        subprocess.run([python, "-c", TRY_IT], cwd=folder, check=True,
                       env={"PATH": str(folder / "env" / "bin"), "HOME": scratch})


def describe(output: Path, made: list[Path], released: str) -> None:
    """The sums, the SBOM and the notes of a release."""
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in made}
    lines = "".join(f"{value}  {name}\n" for name, value in sorted(sums.items()))
    (output / "SHA256SUMS").write_text(lines)
    (output / "sterna.cdx.json").write_text(json.dumps(sbom(released, sums), indent=1) + "\n")
    (output / "NOTES.md").write_text(notes((ROOT / "CHANGELOG.md").read_text(), released))
    print(lines, end="")


def sbom(version: str, sums: dict[str, str]) -> dict[str, object]:
    """What a release consists of and needs, as CycloneDX has it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = [re.match(r"[\w-]+", each) for each in project["dependencies"]]
    return {
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {"component": {
            "type": "library", "name": "sterna", "version": version,
            "purl": f"pkg:pypi/sterna@{version}", "licenses": [{"license": {"id": "Apache-2.0"}}],
        }},
        "components": [
            *({"type": "file", "name": name,
               "hashes": [{"alg": "SHA-256", "content": value}]} for name, value in sums.items()),
            *({"type": "library", "name": name[0], "purl": f"pkg:pypi/{name[0].lower()}",
               "scope": "required"} for name in needed if name),
        ],
    }


def notes(changelog: str, version: str) -> str:
    """The part of the changelog that a release is about."""
    parts = re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]
    own = next((p for p in parts if p.startswith(f"[{version}]")), None)
    found = own or next((p for p in parts if p.startswith("[Unreleased]")), None)
    if found is None:
        sys.exit(f"CHANGELOG.md has no part for {version} and none for what is unreleased")
    return f"# Sterna {version}\n\n" + found.split("\n", 1)[1].strip() + "\n"


if __name__ == "__main__":
    main()
