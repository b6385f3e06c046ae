"""Cut the events of a killed training that its checkpoint does not have.

A resumed training repeats the updates after its checkpoint. Without the cut, readers of
event files would find these steps twice, going backwards.
"""

from pathlib import Path

import tensorflow as tf
from tensorboard.compat.proto.event_pb2 import Event

from show_attend_tell.runtime.files import atomic_path

PATTERN = "events.out.tfevents.*"
_OF_UPDATES = "train/"  # tags of an update; the others are a validation's


def cut_events(folder: Path, step: int, validated: bool) -> None:
    """Remove the events of later updates from a run folder's event files.

    A record that a killed process has left incomplete ends its file.

    Args:
        folder: the run folder.
        step: the last update that counts.
        validated: whether its validation counts too.
    """
    for path in sorted(folder.glob(PATTERN)):
        records, whole = _read_records(path)
        kept = [record for record in records if _is_kept(record, step, validated)]
        if whole and len(kept) == len(records):
            continue
        with (
            atomic_path(path) as temporary,
            tf.io.TFRecordWriter(str(temporary)) as writer,
        ):
            for record in kept:
                writer.write(record)


def _read_records(path: Path) -> tuple[list[bytes], bool]:
    """Return the complete records of a file, and whether there are no others."""
    records: list[bytes] = []
    try:
        for record in tf.data.TFRecordDataset(str(path)):
            records.append(record.numpy())
    except tf.errors.DataLossError:
        return records, False
    return records, True


def _is_kept(record: bytes, step: int, validated: bool) -> bool:
    event = Event.FromString(record)
    if event.step != step or validated:
        return event.step <= step
    tags = [value.tag for value in event.summary.value]
    return step == 0 or all(tag.startswith(_OF_UPDATES) for tag in tags)
