"""Downloads from a server on this machine: resumed, checked, whole or not at all."""

import hashlib
import io
import re
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from data_prep import download, fetch
from data_prep.fetch import Patience, Remote
from show_attend_tell.runtime.errors import DownloadError

CONTENT = bytes(range(256)) * 4096  # 1 MiB
SHA256 = hashlib.sha256(CONTENT).hexdigest()
QUICK = Patience(attempts=3, pause=0.001, connect=5, silence=5)


class Handler(BaseHTTPRequestHandler):
    """Answers as its server's attributes say, and keeps the ranges asked for."""

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        server = self.server
        asked = self.headers.get("Range")
        server.asked.append(asked)
        if server.statuses:
            self.send_error(server.statuses.pop(0))
            return
        first = int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) if asked else 0
        first = first if server.ranges else 0
        body = server.content[first:]
        if first and not body:
            self.send_error(416)
            return
        self.send_response(206 if first else 200)
        if first:
            last = len(server.content) - 1
            begin = first + server.shift
            self.send_header("Content-Range", f"bytes {begin}-{last}/{last + 1}")
        if server.tells_length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        # Dropped: the connection closes before all that was promised is sent.
        sent = server.drops.pop(0) if server.drops else len(body)
        self.wfile.write(body[:sent])


@pytest.fixture
def server():
    """A server of one file; each of ``drops`` is where one connection is cut."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.content, server.ranges, server.shift = CONTENT, True, 0
        server.drops, server.statuses, server.asked = [], [], []
        server.tells_length = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def remote(server, size=1 << 20, sha256=SHA256):
    return Remote(f"http://127.0.0.1:{server.server_port}/file.zip", size, sha256)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_arrives_whole_with_progress(server, tmp_path):
    calls = []
    path = fetch.fetch(
        remote(server), tmp_path / "new", QUICK, lambda *c: calls.append(c)
    )
    assert path.read_bytes() == CONTENT
    assert names(tmp_path / "new") == ["file.zip"]
    done = [call[1] for call in calls]
    assert done == sorted(done)
    assert calls[-1] == ("file.zip", len(CONTENT), len(CONTENT))


@pytest.mark.parametrize(
    ("tells_length", "starts"),
    [(True, [262_144, 262_144, 655_360]), (False, [300_000, 300_001, 700_001])],
)
def test_a_dropped_connection_is_resumed_where_it_stopped(
    server, tmp_path, tells_length, starts
):
    server.drops, server.tells_length = [300_000, 1, 400_000], tells_length
    path = fetch.fetch(remote(server), tmp_path, QUICK)
    assert path.read_bytes() == CONTENT
    assert server.asked == [None, *(f"bytes={start}-" for start in starts)]


def test_a_part_of_an_earlier_run_is_continued(server, tmp_path):
    (tmp_path / "file.zip.part").write_bytes(CONTENT[:1000])
    assert fetch.fetch(remote(server), tmp_path, QUICK).read_bytes() == CONTENT
    assert server.asked == ["bytes=1000-"]


def test_a_whole_part_is_checked_without_asking(server, tmp_path):
    (tmp_path / "file.zip.part").write_bytes(CONTENT)
    fetch.fetch(remote(server), tmp_path, QUICK)
    assert server.asked == []
    assert names(tmp_path) == ["file.zip"]


def test_a_file_that_is_there_is_kept_without_asking(server, tmp_path):
    (tmp_path / "file.zip").write_bytes(CONTENT)
    fetch.fetch(remote(server), tmp_path, QUICK)
    assert server.asked == []


def test_a_file_of_another_size_is_not_overwritten(server, tmp_path):
    (tmp_path / "file.zip").write_bytes(b"mine")
    with pytest.raises(DownloadError, match="remove it to fetch it again"):
        fetch.fetch(remote(server), tmp_path, QUICK)
    assert (tmp_path / "file.zip").read_bytes() == b"mine"


def test_a_server_without_ranges_sends_the_whole_file_again(server, tmp_path):
    server.ranges, server.drops = False, [500_000]
    assert fetch.fetch(remote(server), tmp_path, QUICK).read_bytes() == CONTENT
    assert server.asked == [None, "bytes=458752-"]


def test_a_server_that_never_gets_further_is_given_up(server, tmp_path):
    server.ranges, server.drops = False, [500_000] * 9
    with pytest.raises(DownloadError, match="cut off 3 times at byte 458752 of") as e:
        fetch.fetch(remote(server), tmp_path, QUICK)
    assert "\n" not in str(e.value)
    assert names(tmp_path) == ["file.zip.part"]
    assert len(server.asked) == 4


def test_wrong_bytes_are_deleted_and_never_get_the_name(server, tmp_path):
    server.content = CONTENT[:-1] + b"\0"
    with pytest.raises(DownloadError, match="SHA-256 must be .* was deleted"):
        fetch.fetch(remote(server), tmp_path, QUICK)
    assert names(tmp_path) == []


def test_a_file_that_changed_in_size_is_refused_before_it_is_sent(server, tmp_path):
    server.content = b"<html>please log in</html>"
    with pytest.raises(DownloadError, match=r"must have 1048576 bytes\. Received: 26"):
        fetch.fetch(remote(server), tmp_path, QUICK)
    assert names(tmp_path) == []


def test_a_file_longer_than_it_should_be_is_cut_short_and_refused(server, tmp_path):
    server.content, server.tells_length = CONTENT * 2, False
    with pytest.raises(DownloadError, match="its size must be 1048576"):
        fetch.fetch(remote(server), tmp_path, QUICK)
    assert names(tmp_path) == []


def test_a_range_that_was_not_asked_for_is_refused(server, tmp_path):
    (tmp_path / "file.zip.part").write_bytes(CONTENT[:1000])
    server.shift = 5
    with pytest.raises(DownloadError, match="the server answers 206"):
        fetch.fetch(remote(server), tmp_path, QUICK)
    assert (tmp_path / "file.zip.part").read_bytes() == CONTENT[:1000]


@pytest.mark.parametrize("status", [404, 403])
def test_a_refusal_is_one_line_and_not_repeated(server, tmp_path, status):
    server.statuses = [status] * 9
    with pytest.raises(DownloadError, match=f"the server answers {status}") as error:
        fetch.fetch(remote(server), tmp_path, QUICK)
    assert "\n" not in str(error.value)
    assert len(server.asked) == 1
    assert names(tmp_path) == []


def test_a_busy_server_is_asked_again(server, tmp_path):
    server.statuses = [503, 500]
    assert fetch.fetch(remote(server), tmp_path, QUICK).read_bytes() == CONTENT


def test_a_server_that_stays_busy_is_given_up(server, tmp_path):
    server.statuses = [503] * 9
    with pytest.raises(DownloadError, match="the server answers 503"):
        fetch.fetch(remote(server), tmp_path, QUICK)
    assert len(server.asked) == 3


def test_a_server_that_is_not_there_is_one_line(tmp_path):
    absent = Remote("http://127.0.0.1:9/file.zip", 5)
    with pytest.raises(DownloadError, match="cannot be reached") as error:
        fetch.fetch(absent, tmp_path, QUICK)
    assert "\n" not in str(error.value)


def a_zip() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("dataset.json", b"content " * 100)
    return content.getvalue()


def test_without_a_checksum_the_archive_itself_is_tested(server, tmp_path):
    server.content = a_zip()
    fetch.fetch(remote(server, len(server.content), None), tmp_path, QUICK)
    assert names(tmp_path) == ["file.zip"]


@pytest.mark.parametrize("where", [60, -10])
def test_without_a_checksum_a_damaged_archive_is_refused(server, tmp_path, where):
    content = bytearray(a_zip())
    content[where] ^= 0xFF
    server.content = bytes(content)
    with pytest.raises(DownloadError, match=r"damaged|whole zip"):
        fetch.fetch(remote(server, len(content), None), tmp_path, QUICK)
    assert names(tmp_path) == []


def test_a_full_disk_is_one_line_before_anything_is_sent(server, tmp_path, monkeypatch):
    monkeypatch.setattr(fetch, "free_bytes", lambda folder: 10)
    with pytest.raises(DownloadError, match=r"needs 1\.0 MB and 10 B are free"):
        fetch.fetch(remote(server), tmp_path, QUICK)
    assert server.asked == []


def test_a_folder_that_cannot_be_made_is_one_line(server, tmp_path):
    (tmp_path / "taken").write_bytes(b"")
    with pytest.raises(DownloadError, match="cannot be written"):
        fetch.fetch(remote(server), tmp_path / "taken", QUICK)


def test_download_fetches_every_file_of_a_source(server, tmp_path, monkeypatch):
    monkeypatch.setitem(download.FILES, "coco", (remote(server),))
    assert download.size_of("coco") == len(CONTENT)
    assert download.download("coco", tmp_path) == [tmp_path / "file.zip"]


@pytest.mark.parametrize("source", ["flickr8k", "scenes", "imagenet"])
def test_download_says_what_cannot_be_fetched(tmp_path, source):
    with pytest.raises(DownloadError, match=r"must be one of \['coco', 'flickr30k'\]"):
        download.download(source, tmp_path)


def test_the_files_of_coco_are_those_that_its_reader_reads():
    files = [file.name for file in download.FILES["coco"]]
    assert files[:2] == ["annotations_trainval2014.zip", "caption_datasets.zip"]
    assert files[2:] == ["train2014.zip", "val2014.zip"]
    assert download.size_of("coco") == 20_445_205_257
