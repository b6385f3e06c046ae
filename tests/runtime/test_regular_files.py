"""Only regular files are opened, and no more than a limit is read."""

import os

import pytest

from show_attend_tell.runtime.regular_files import read_text_bytes, require_regular


def test_a_file_of_the_largest_size_is_read_whole(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"12345678")
    assert read_text_bytes(path, limit=8) == b"12345678"
    with pytest.raises(OSError, match=r"at most 7 bytes. Received: 8"):
        read_text_bytes(path, limit=7)


@pytest.mark.timeout(20)
def test_pipes_devices_and_links_to_them_are_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "link").symlink_to("pipe")
    for path in (*tmp_path.iterdir(), tmp_path):
        with pytest.raises(OSError, match="not a regular file"):
            read_text_bytes(path)


def test_absent_files_have_the_error_of_the_system(tmp_path):
    with pytest.raises(FileNotFoundError):
        require_regular(tmp_path / "absent")
