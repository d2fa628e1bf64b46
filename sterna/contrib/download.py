"""Files from the network, by the functions that classic programs fetch models and pictures with.

Nothing of this package calls them: what is fetched, and from where, is the program's own choice.
"""

import contextlib
import os
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

SCHEMES = ("http", "https", "file")
WAIT_S = 30.0
PIECE = 1 << 20


def download(
    url: str, path: str | Path, overwrite: bool = False, size_compare: bool = False,
    retries: int = 3,
) -> None:
    """Fetch a file, unless it is there; it appears whole or not at all.

    size_compare: whether one that is there is fetched again when the server says another size.
    """
    if urllib.parse.urlsplit(url).scheme not in SCHEMES:
        raise ValueError(f"{url!r} is no address of a file: it begins with {', '.join(SCHEMES)}")
    place = Path(path)
    if place.exists() and not overwrite and not (size_compare and _size(url) != _size_of(place)):
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(max(1, retries)):
        try:
            _fetch(url, place)
            return
        except urllib.error.HTTPError as error:
            raise OSError(f"{url} cannot be fetched: {error}") from None
        except OSError as error:
            if attempt + 1 >= retries:
                raise OSError(
                    f"{url} cannot be fetched: {error}; fetch it elsewhere and put it at {place}"
                ) from None
            time.sleep(0.5 * 2**attempt)


def download_testdata(
    url: str, relpath: str, module: str | list[str] | None = None, overwrite: bool = False
) -> str:
    """The path of a file in the folder of test data, fetched when it is not there.

    The folder is named by TEST_DATA_ROOT_PATH, or it is .sterna_test_data in the user's home.
    """
    root = Path(os.environ.get("TEST_DATA_ROOT_PATH") or Path.home() / ".sterna_test_data")
    folders = [module] if isinstance(module, str) else list(module or [])
    place = root.joinpath(*folders, relpath)
    if not place.resolve().is_relative_to(root.resolve()):
        raise ValueError(f"{relpath!r} lies outside of the folder of test data, {root}")
    download(url, place, overwrite)
    return str(place)


def _fetch(url: str, place: Path) -> None:
    with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
        made, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")
        try:
            with os.fdopen(made, "wb") as file:
                total = _copy(answer, file)
            expected = answer.headers.get("Content-Length")
            if expected is not None and int(expected) != total:
                raise OSError(f"{total} bytes came of {expected}")
            os.replace(name, place)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise


def _copy(source: Any, file: Any) -> int:
    total = 0
    while piece := source.read(PIECE):
        file.write(piece)
        total += len(piece)
    return total


def _size(url: str) -> int | None:
    try:
        with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
            said = answer.headers.get("Content-Length")
    except OSError:
        return None
    return None if said is None else int(said)


def _size_of(path: Path) -> int | None:
    return path.stat().st_size
