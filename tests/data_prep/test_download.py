"""Test downloads from a local server: resumed, verified and renamed at the end."""

import hashlib
import re
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from data_prep_files import FLICKR8K_PHOTOS, make_flickr8k, make_zip
from refusals import refused

from data_prep import disk, download
from data_prep.download import Counts, RemoteFile, download_file
from show_attend_tell.cli.main import main
from show_attend_tell.runtime.errors import DataError
from show_attend_tell.runtime.files import locked

CONTENT = bytes(range(256)) * 4096  # 1 MiB
SIZE = len(CONTENT)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """Serve files as the attributes of the server state; record the ranges."""

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        server = self.server
        first = int(re.fullmatch(r"bytes=(\d+)-", self.headers["Range"])[1])
        server.starts.append(first)
        if server.statuses:
            self.send_error(server.statuses.pop(0))
            return
        content = server.files.get(self.path.rpartition("/")[2], server.content)
        if server.ranges and first >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.end_headers()
            return
        body = content[first + server.shift :] if server.ranges else content
        self.send_response(206 if server.ranges else 200)
        if server.sends_length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        # Dropped: the connection closes before the whole body is sent.
        self.wfile.write(body[: server.drops.pop(0) if server.drops else len(body)])


@pytest.fixture
def server(monkeypatch):
    """Yield a server of one file; each of ``drops`` is the end of one response."""
    retries = download._RETRIES.new(total=2, backoff_factor=0.001)
    monkeypatch.setattr(download, "_RETRIES", retries)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.content, server.ranges, server.shift = CONTENT, True, 0
        server.drops, server.statuses, server.starts = [], [], []
        server.files = {}  # those of another content, by name
        server.sends_length = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def remote(server, size=SIZE, sha256=SHA256):
    return RemoteFile(f"http://127.0.0.1:{server.server_port}/file.zip", size, sha256)


def names(folder):
    """Return the names of all files but the lock."""
    return sorted(path.name for path in folder.iterdir())


def test_a_complete_file_gets_its_name(server, tmp_path, capsys):
    path = download_file(remote(server), tmp_path / "new", progress=True)
    assert "file.zip: 100%" in capsys.readouterr().err
    assert path.read_bytes() == CONTENT
    assert names(tmp_path / "new") == ["file.zip"]
    assert download_file(remote(server), tmp_path / "new") == path
    assert server.starts == [0]  # the file present is not requested again


@pytest.mark.parametrize(
    ("sends_length", "ranges", "starts"),
    [
        (True, True, [0, 262_144, 262_144]),
        (False, True, [0, 300_000, 300_001]),
        (True, False, [0, 262_144, 0]),  # the second response starts over
    ],
)
def test_a_dropped_connection_is_one_line_and_the_next_run_resumes(
    server, tmp_path, sends_length, ranges, starts
):
    server.drops, server.sends_length = [300_000, 1], sends_length
    server.ranges = ranges
    for _ in range(2):
        with refused(DataError, "run the command again to re"):
            download_file(remote(server), tmp_path)
        assert names(tmp_path) == ["file.zip.part"]
    assert download_file(remote(server), tmp_path).read_bytes() == CONTENT
    assert server.starts == starts


@pytest.mark.parametrize(("done", "starts"), [(1000, [1000]), (len(CONTENT), [])])
def test_the_part_of_an_earlier_run_is_resumed(server, tmp_path, done, starts):
    (tmp_path / "file.zip.part").write_bytes(CONTENT[:done])
    assert download_file(remote(server), tmp_path).read_bytes() == CONTENT
    assert server.starts == starts
    assert names(tmp_path) == ["file.zip"]


def test_a_second_process_is_refused_and_leaves_the_part_as_it_is(server, tmp_path):
    (tmp_path / "file.zip.part").write_bytes(CONTENT[:10])
    lock = tmp_path / ".file.zip.lock"
    with (
        locked(lock, KeyError()),
        pytest.raises(DataError, match="another process"),
    ):
        download_file(remote(server), tmp_path)
    assert (tmp_path / "file.zip.part").read_bytes() == CONTENT[:10]
    assert download_file(remote(server), tmp_path).read_bytes() == CONTENT


ANOTHER_SIZE = r"must have 1048576 bytes\. Received: "


@pytest.mark.parametrize(
    ("changes", "message", "part", "requests"),
    [
        ({"content": CONTENT[:-1] + b"\0"}, "SHA-256 must be .* deleted", [], 1),
        (
            {"content": CONTENT * 2, "sends_length": False},
            *("size must be 1048576 bytes", [], 1),
        ),
        ({"content": b"<html>please log in</html>"}, ANOTHER_SIZE, [CONTENT[:10]], 1),
        ({"shift": 5}, ANOTHER_SIZE, [CONTENT[:10]], 1),
        ({"statuses": [404] * 9}, "downloaded: 404 ", [CONTENT[:10]], 1),
        ({"statuses": [403] * 9}, "downloaded: 403 ", [CONTENT[:10]], 1),
        ({"statuses": [503] * 9}, "downloaded: 503 ", [CONTENT[:10]], 3),
    ],
)
def test_a_wrong_response_is_one_line_and_leaves_or_deletes_the_part(
    server, tmp_path, changes, message, part, requests
):
    (tmp_path / "file.zip.part").write_bytes(CONTENT[:10])
    vars(server).update(changes)
    with refused(DataError, message):
        download_file(remote(server), tmp_path)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == part
    assert len(server.starts) == requests


def test_a_busy_server_is_requested_again(server, tmp_path):
    server.statuses = [503, 429]
    assert download_file(remote(server), tmp_path).read_bytes() == CONTENT


def test_an_existing_file_is_not_overwritten(server, tmp_path):
    (tmp_path / "file.zip").write_bytes(b"mine")
    with refused(DataError, "remove the file to download it again"):
        download_file(remote(server), tmp_path)
    assert (tmp_path / "file.zip").read_bytes() == b"mine"
    with refused(DataError, "cannot be written"):
        download_file(remote(server), tmp_path / "file.zip")


def test_download_writes_every_file_of_a_source_if_the_disk_has_room(
    server, tmp_path, monkeypatch
):
    monkeypatch.setitem(download.FILES, "coco", (remote(server),))
    with monkeypatch.context() as patch:
        patch.setattr(disk, "free_bytes", lambda folder: 10)
        with refused(DataError, r"need 1\.05MB of .*10\.0B free"):
            download.download("coco", tmp_path)
    assert server.starts == []
    assert download.download("coco", tmp_path) == [tmp_path / "file.zip"]


@pytest.mark.parametrize("source", ["folder", "scenes", "imagenet"])
def test_a_source_without_downloads_is_refused(tmp_path, source):
    with refused(DataError, r"must be one of \['coco', 'flickr30k', 'flickr8k'\]"):
        download.download(source, tmp_path)


def test_the_files_of_coco_are_those_of_its_reader():
    files = [file.name for file in download.FILES["coco"]]
    assert files[:2] == ["annotations_trainval2014.zip", "caption_datasets.zip"]
    assert files[2:] == ["train2014.zip", "val2014.zip"]
    assert sum(one.size for one in download.FILES["coco"]) == 20_445_205_257


def test_a_file_of_unknown_size_is_resumed_by_the_servers_size(server, tmp_path):
    server.drops = [300_000]
    unknown = remote(server, size=None)
    with refused(DataError, "run the command again to re"):
        download_file(unknown, tmp_path)
    assert download_file(unknown, tmp_path).read_bytes() == CONTENT
    assert server.starts == [0, 262_144]


def test_a_complete_part_of_unknown_size_gets_its_name(server, tmp_path):
    (tmp_path / "file.zip.part").write_bytes(CONTENT)
    path = download_file(remote(server, size=None), tmp_path)
    assert path.read_bytes() == CONTENT
    assert server.starts == [SIZE]


@pytest.mark.parametrize("size", [None, SIZE])
def test_a_part_longer_than_the_file_is_downloaded_anew(server, tmp_path, size):
    server.content = CONTENT[:1000]
    wanted = remote(server, size and 1000, hashlib.sha256(server.content).hexdigest())
    (tmp_path / "file.zip.part").write_bytes(b"of another file" * 1000)
    if size:
        with refused(DataError, "size must be 1000 bytes. Received: 15000; deleted"):
            download_file(wanted, tmp_path)
    assert download_file(wanted, tmp_path).read_bytes() == server.content
    assert server.starts == ([0] if size else [15_000, 0])
    assert names(tmp_path) == ["file.zip"]


def test_a_server_that_refuses_every_range_is_one_line(server, tmp_path):
    (tmp_path / "file.zip.part").write_bytes(b"x" * 10)
    server.statuses = [416, 416]
    with refused(DataError, "416 .*run the command again"):
        download_file(remote(server, size=None), tmp_path)
    assert server.starts == [10, 0]
    assert (tmp_path / "file.zip.part").read_bytes() == b"x" * 10


def test_a_file_of_another_md5_is_deleted(server, tmp_path):
    right = hashlib.md5(CONTENT, usedforsecurity=False).hexdigest()
    wrong = remote(server, None, None)._replace(md5="0" * 32)
    with refused(DataError, f"MD5 must be 0+. Received: {right}; deleted"):
        download_file(wrong, tmp_path)
    assert names(tmp_path) == []
    assert download_file(wrong._replace(md5=right), tmp_path).exists()


def test_a_disk_is_compared_with_the_servers_size(server, tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "free_bytes", lambda folder: 10)
    with refused(DataError, r"need 1\.05MB of .*10\.0B free"):
        download_file(remote(server, size=None), tmp_path)
    assert names(tmp_path) == []


# Of the tiny Flickr8k of tests: five photos, two captions each.
TINY = Counts(5, 10, {"train": 2, "val": 1, "test": 1})


@pytest.fixture
def flickr8k(server, tmp_path, monkeypatch):
    """Return the archives of a tiny Flickr8k, by name, that the server has."""
    archives = make_flickr8k(tmp_path / "archives", packed=True)
    files = {path.name: path.read_bytes() for path in archives.iterdir()}
    server.files = files
    address = f"http://127.0.0.1:{server.server_port}"
    remotes = tuple(
        RemoteFile(f"{address}/{each.name}", None) for each in download.FLICKR8K
    )
    monkeypatch.setitem(download.FILES, "flickr8k", remotes)
    monkeypatch.setitem(download.COUNTS, "flickr8k", TINY)
    return files


def prepare(tmp_path, *options):
    """Return the exit status of `prepare --download` of flickr8k_soft."""
    arguments = ["prepare", "-e", "flickr8k_soft", "--download"]
    arguments += ["--work", str(tmp_path / "work"), "--set", "data.min_count=1"]
    try:
        main([*arguments, *options])
    except SystemExit as end:
        return end.code
    return 0


def test_prepare_downloads_flickr8k_and_prepares_it(server, flickr8k, tmp_path, capsys):
    assert prepare(tmp_path) == 0
    assert "train: 2 photos, 4 captions" in capsys.readouterr().out
    folder = tmp_path / "work" / "downloads" / "flickr8k"
    assert names(folder) == ["Flickr8k_Dataset.zip", "Flickr8k_text.zip"]
    assert (tmp_path / "work" / "flickr8k" / "manifest.jsonl").exists()
    # What is there is not received again, also in a folder that the user names.
    assert prepare(tmp_path, "--data", str(folder)) == 0
    assert server.starts == [0, 0]


def test_a_download_cut_off_is_resumed_by_the_next_prepare(
    server, flickr8k, tmp_path, capsys
):
    photos = np.random.default_rng(0).bytes(200_000)  # more than a chunk
    packed = {**FLICKR8K_PHOTOS, "Flicker8k_Dataset/dog.jpg": photos}
    archive = make_zip(tmp_path / "photos.zip", packed)
    server.files["Flickr8k_Dataset.zip"] = archive.read_bytes()
    server.drops = [len(flickr8k["Flickr8k_text.zip"]), 150_000]
    assert prepare(tmp_path) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "Flickr8k_Dataset.zip: cannot be downloaded" in line
    assert not (tmp_path / "work" / "flickr8k").exists()
    assert prepare(tmp_path) == 0
    assert server.starts == [0, 0, 2 << 16]


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        (TINY._replace(photos=8091), r"must hold 8,091 photos\. Received: 5; remove"),
        (TINY._replace(captions=9), r"must hold 9 captions\. Received: 10; remove"),
        (
            TINY._replace(lists={"train": 3, "val": 1, "test": 1}),
            r"hold 3 photos in Flickr_8k\.trainImages\.txt\. Received: 2; remove",
        ),
    ],
)
def test_archives_of_another_content_are_refused_and_kept(
    flickr8k, tmp_path, monkeypatch, expected, message
):
    monkeypatch.setitem(download.COUNTS, "flickr8k", expected)
    with refused(DataError, message):
        download.download("flickr8k", tmp_path / "data")
    assert names(tmp_path / "data") == sorted(flickr8k)


def test_without_a_text_file_its_captions_are_missing(server, flickr8k, tmp_path):
    make_zip(tmp_path / "texts.zip", {"readme.txt": "nothing"})
    server.files["Flickr8k_text.zip"] = (tmp_path / "texts.zip").read_bytes()
    with refused(DataError, "must hold 10 captions. Received: 0; 2 photos in Fli"):
        download.download("flickr8k", tmp_path / "data")


def test_without_a_network_the_address_is_named_in_one_line(
    tmp_path, monkeypatch, capsys
):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}/Flickr8k_text.zip"
    monkeypatch.setitem(download.FILES, "flickr8k", (RemoteFile(address, None),) * 2)
    assert prepare(tmp_path) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{address}: cannot be downloaded: Failed to establish a new con" in line


def test_a_proxy_that_does_not_answer_is_named(tmp_path, monkeypatch):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        proxy = f"http://127.0.0.1:{closed.getsockname()[1]}"
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    monkeypatch.setenv("https_proxy", proxy)
    address = "https://example.invalid/Flickr8k_text.zip"
    message = f"^{address}: cannot be downloaded: the proxy: Failed to establish a new"
    with refused(DataError, f"{message}[^()]* refused; check the network"):
        download_file(RemoteFile(address, None), tmp_path)


def test_the_counts_of_flickr8k_are_those_of_its_public_copy():
    counts = download.COUNTS["flickr8k"]
    assert counts == (8091, 40460, {"train": 6000, "val": 1000, "test": 1000})
    address = "https://github.com/jbrownlee/Datasets/releases/download/Flickr8k/"
    urls = [file.url for file in download.FILES["flickr8k"]]
    assert urls == [f"{address}Flickr8k_text.zip", f"{address}Flickr8k_Dataset.zip"]
