"""Files are fetched once, whole or not at all."""

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sterna.contrib.download import download, download_testdata


class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/missing":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", "9" if self.path == "/short" else "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def server() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{serving.server_port}"
        serving.shutdown()
        thread.join()


def test_files_are_fetched_once(server: str, tmp_path: Path) -> None:
    place = tmp_path / "deep" / "file"
    download(f"{server}/file", place)
    assert place.read_bytes() == b"hello"
    place.write_bytes(b"other, longer")
    download(f"{server}/file", place)
    assert place.read_bytes() == b"other, longer"
    download(f"{server}/file", place, size_compare=True)
    assert place.read_bytes() == b"hello"


@pytest.mark.parametrize("name", ["missing", "short"])
def test_nothing_is_left_of_what_fails(server: str, tmp_path: Path, name: str) -> None:
    with pytest.raises(OSError, match=f"/{name} cannot be fetched"):
        download(f"{server}/{name}", tmp_path / "file", retries=1)
    assert not list(tmp_path.iterdir())


def test_folder_of_test_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_DATA_ROOT_PATH", str(tmp_path / "data"))
    source = tmp_path / "source.txt"
    source.write_text("here")
    found = download_testdata(source.as_uri(), "cat.txt", module="data")
    assert found == str(tmp_path / "data" / "data" / "cat.txt")
    assert Path(found).read_text() == "here"
    with pytest.raises(ValueError, match="outside of the folder"):
        download_testdata(source.as_uri(), "../../cat.txt")
    with pytest.raises(ValueError, match="is no address of a file"):
        download("gopher://x/y", tmp_path / "y")
