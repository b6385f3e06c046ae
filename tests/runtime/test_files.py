"""Atomic writing: the old file or the new one, never a part."""

import contextlib
import errno
import fcntl
import multiprocessing
import os
import threading

import pytest
from full_disk import files_of_at_most
from refusals import refused

from show_attend_tell.runtime import files
from show_attend_tell.runtime.errors import TrainingError
from show_attend_tell.runtime.files import (
    atomic_path,
    atomic_write,
    fault_of_locks,
    locked,
    rewrite,
)


@pytest.mark.parametrize(
    ("content", "stored"),
    [("größer\n", "größer\n".encode()), (b"\x00\xff", b"\x00\xff")],
)
def test_text_is_written_as_utf_8_and_bytes_as_they_are(tmp_path, content, stored):
    path = tmp_path / "new" / "folder" / "file.txt"
    atomic_write(path, content)
    assert path.read_bytes() == stored
    assert [entry.name for entry in path.parent.iterdir()] == ["file.txt"]


def test_the_old_file_is_complete_until_the_body_ends(tmp_path):
    path = tmp_path / "file.txt"
    atomic_write(path, "old")
    with atomic_path(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
        assert temporary.parent == path.parent
        assert temporary.suffix == path.suffix
    assert path.read_text() == "new"


def fail(path, error):
    with atomic_path(path) as temporary:
        temporary.write_text("half")
        raise error


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_an_error_leaves_the_old_file_and_no_temporary_one(tmp_path, error):
    path = tmp_path / "file.txt"
    atomic_write(path, "old")
    with pytest.raises(error):
        fail(path, error)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file.txt"]


@pytest.mark.parametrize("name", ["file.txt", "folder"])
def test_the_temporary_file_of_a_killed_process_is_removed_first(tmp_path, name):
    left_over = tmp_path / f".writing-{name}"
    if name == "folder":
        left_over.mkdir()
        (left_over / "part").touch()
    else:
        left_over.write_text("part")
    with atomic_path(tmp_path / name) as temporary:
        assert temporary == left_over
        assert not temporary.exists()
        temporary.write_text("whole")
    assert (tmp_path / name).read_text() == "whole"
    assert os.listdir(tmp_path) == [name]


def test_a_folder_replaces_an_empty_one_only(tmp_path):
    path = tmp_path / "folder"
    path.mkdir()
    with atomic_path(path) as temporary:
        temporary.mkdir()
        (temporary / "file.txt").write_text("new")
    assert (path / "file.txt").read_text() == "new"

    def replace():
        with atomic_path(path) as temporary:
            temporary.mkdir()

    with pytest.raises(OSError, match="not empty"):
        replace()
    assert os.listdir(path) == ["file.txt"]
    assert os.listdir(tmp_path) == ["folder"]


@pytest.mark.parametrize("name", ["x" * 251 + ".jpg", "ä" * 127, "." + "x" * 254])
def test_names_may_be_as_long_as_the_file_system_allows(tmp_path, name):
    atomic_write(tmp_path / name, "content")
    with atomic_path(tmp_path / name) as temporary:
        assert temporary.name.startswith(".writing-")
        assert temporary.suffix == (".jpg" if name.endswith(".jpg") else "")
        temporary.write_text("new")
    assert (tmp_path / name).read_text() == "new"
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize(
    ("number", "text", "named", "filename"),
    [
        (errno.ENOSPC, "No space left on device", None, "file.txt"),
        (errno.EFBIG, "File too large", ".writing-file.txt", "file.txt"),
        (errno.EACCES, "Permission denied", "photo.jpg", "photo.jpg"),
    ],
)
def test_a_full_disk_is_an_error_of_the_path(tmp_path, number, text, named, filename):
    error = OSError(number, text, named and str(tmp_path / named))
    with pytest.raises(OSError, match=text) as caught:
        fail(tmp_path / "file.txt", error)
    assert caught.value.filename == str(tmp_path / filename)


def hold(path, held, end):
    """Be another process that holds a lock."""
    with locked(path, RuntimeError()):
        held.set()
        end.wait(60)


@pytest.fixture
def holder(tmp_path):
    """The end of another process that holds the lock ``file.lock``, and its event."""
    context = multiprocessing.get_context("spawn")
    held, end = context.Event(), context.Event()
    process = context.Process(target=hold, args=(tmp_path / "file.lock", held, end))
    process.start()
    assert held.wait(60)
    yield end
    end.set()
    process.join(60)


def test_a_lock_is_refused_while_another_process_holds_it(tmp_path, holder):
    path = tmp_path / "file.lock"
    with pytest.raises(KeyError, match="taken"), locked(path, KeyError("taken")):
        pytest.fail("two processes hold the lock")
    threading.Timer(0.3, holder.set).start()
    with locked(path, KeyError("taken"), seconds=60):
        assert holder.is_set()
        assert path.exists()
    assert list(tmp_path.iterdir()) == []


def write(path):
    atomic_write(path, "content")


def lock(path):
    locked(path, KeyError()).__enter__()


@pytest.mark.parametrize("use", [write, lock])
def test_a_folder_that_is_a_file_is_named_in_the_error(tmp_path, use):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="exists|Not a directory") as caught:
        use(tmp_path / "file" / "inner")
    assert caught.value.filename == str(tmp_path / "file")


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_locks_is_named_and_nothing_written(
    tmp_path, monkeypatch, code
):
    def flock(file, operation):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("fcntl.flock", flock)
    taken, written = TrainingError("taken"), []
    with refused(TrainingError, "has no file locks .* choose a folder on a local disk"):
        with locked(tmp_path / "x.lock", taken):
            written.append(1)
    assert not written
    assert not any(tmp_path.iterdir())  # not even the lock file


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc of Linux")
def test_a_folder_that_takes_no_new_files_is_not_taken_by_another_process():
    with refused(TrainingError, "^/proc: no file can be created here .*; choose a"):
        with locked("/proc/x.lock", TrainingError("taken")):
            pytest.fail("locked")


def test_faults_of_locks_are_told_from_others(tmp_path):
    path = tmp_path / "x.h5"
    path.write_bytes(b"not HDF5")
    no_locks = OSError(errno.ENOLCK, "unable to lock file")
    assert "no file locks" in fault_of_locks(path, no_locks)
    busy = BlockingIOError(errno.EAGAIN, "unable to lock file, errno = 11")
    assert "another process has this file open" in fault_of_locks(path, busy)
    assert fault_of_locks(path, OSError(errno.ENOSPC, "disk full")) is None
    assert fault_of_locks(path, PermissionError(errno.EACCES, "denied")) is None
    assert fault_of_locks("no file", ValueError("damaged")) is None
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # as HDF5 does while it writes
        fault = fault_of_locks(path, OSError("truncated"))
    assert "another process has this file open" in fault
    assert fault_of_locks(path, OSError("truncated")) is None


def test_locks_of_the_longest_names_are_taken(tmp_path):
    path = tmp_path / ("x" * 255 + ".lock")
    with locked(path, KeyError()), pytest.raises(KeyError), locked(path, KeyError()):
        pytest.fail("locked twice")


def test_unique_temporary_files_let_two_writers_finish(tmp_path):
    path = tmp_path / "part.h5"
    with atomic_path(path, unique=True) as one, atomic_path(path, unique=True) as two:
        assert one != two
        assert one.suffix == ".h5"
        one.write_text("content")
        two.write_text("content")
    assert path.read_text() == "content"
    assert os.listdir(tmp_path) == ["part.h5"]


def test_a_replaced_file_keeps_its_mode_and_attributes(tmp_path):
    path = tmp_path / "file.txt"
    atomic_write(path, "old")
    path.chmod(0o640)
    attributes = set_attribute(path)
    atomic_write(path, "new")
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o640
    assert attributes == attributes_of(path)


def set_attribute(path):
    """Set an extended attribute where the file system has them; return all."""
    with contextlib.suppress(OSError, AttributeError):
        os.setxattr(path, "user.tag", b"holiday")
    return attributes_of(path)


def attributes_of(path):
    try:
        return {name: os.getxattr(path, name) for name in os.listxattr(path)}
    except (OSError, AttributeError):
        return {}


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid(), reason="needs root")
def test_the_superuser_gives_a_file_back_to_its_owner(tmp_path):
    path = tmp_path / "file.txt"
    for write in (atomic_write, rewrite):
        path.write_text("old")
        os.chown(path, 1000, 1001)
        path.chmod(0o640)
        write(path, b"new")
        found = path.stat()
        assert (found.st_uid, found.st_gid) == (1000, 1001)
        assert found.st_mode & 0o777 == 0o640


def test_a_file_with_several_names_is_written_in_place(tmp_path):
    path = tmp_path / "file.txt"
    path.write_text("old and longer")
    os.link(path, tmp_path / "other")
    rewrite(path, b"new")
    assert (tmp_path / "other").read_bytes() == b"new"
    assert path.samefile(tmp_path / "other")
    path.chmod(0o444)
    with pytest.raises(PermissionError):
        rewrite(path, b"newer")
    assert path.read_bytes() == b"new"
    assert sorted(os.listdir(tmp_path)) == ["file.txt", "other"]


def test_a_file_whose_owner_cannot_be_kept_is_written_in_place(tmp_path, monkeypatch):
    path = tmp_path / "file.txt"
    path.write_text("old")
    before = path.stat().st_ino
    known = files._ownership(path)
    answers = iter([known, ()])  # as if another user owned it
    monkeypatch.setattr(files, "_ownership", lambda path: next(answers))
    rewrite(path, b"new")
    assert (path.read_bytes(), path.stat().st_ino) == (b"new", before)
    assert os.listdir(tmp_path) == ["file.txt"]


def test_a_failed_write_in_place_restores_the_old_content(tmp_path):
    path = tmp_path / "file.txt"
    path.write_bytes(b"old")
    os.link(path, tmp_path / "other")
    with files_of_at_most(100), pytest.raises(OSError, match="too large"):
        rewrite(path, b"new" * 100)
    assert path.read_bytes() == b"old"
