"""Write TensorBoard's event files, and cut the events that a checkpoint does not have.

The files are written with tensorboard's own records, so that no backend is needed.

A resumed training repeats the updates after its checkpoint. Without the cut, readers of
event files would find these steps twice, going backwards.
"""

import io
import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c
from tensorboard.plugins.histogram.summary_v2 import histogram_pb
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.plugins.image import metadata as image_plugin
from tensorboard.plugins.scalar.summary_v2 import scalar_pb
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.record_writer import RecordWriter
from tensorboard.util.tensor_util import make_tensor_proto

from show_attend_tell.runtime.files import atomic_path

PATTERN = "events.out.tfevents.*"
# How tags of an update and of the settings begin; the others are a validation's.
_NOT_VALIDATED = ("train/", "settings", "_hparams_/")
_HEADER = struct.Struct("<QI")  # length of a record and its checksum
_FOOTER = 4  # bytes of the checksum of its content


class EventWriter:
    """Append summaries to a new event file of a folder.

    Each call writes one event and passes it on to the system, so that a killed training
    loses none.
    """

    def __init__(self, folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        # The name of TensorBoard's files; a number makes it unique in this process.
        stem = f"events.out.tfevents.{time.time():.0f}.{socket.gethostname()}"
        number = len(list(folder.glob(PATTERN)))
        self._file = (folder / f"{stem}.{os.getpid()}.{number}.v2").open("xb")
        self._records = RecordWriter(self._file)
        # TensorBoard's files begin with the version of their format.
        self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Write numbers by their tags."""
        self._add(step, *(scalar_pb(tag, float(x)) for tag, x in values.items()))

    def text(self, step: int, tag: str, text: str) -> None:
        """Write a text in Markdown."""
        self._add(step, text_pb(tag, text))

    def histogram(self, step: int, tag: str, values: np.ndarray) -> None:
        """Write the distribution of numbers."""
        self._add(step, histogram_pb(tag, np.asarray(values, np.float64)))

    def image(self, step: int, tag: str, pixels: np.ndarray) -> None:
        """Write a picture, (H, W), (H, W, 1) or (H, W, 3) uint8."""
        pixels = np.asarray(pixels)
        if pixels.ndim == 3 and pixels.shape[2] == 1:
            pixels = pixels[:, :, 0]
        H, W = pixels.shape[:2]
        png = io.BytesIO()
        Image.fromarray(pixels).save(png, "PNG")
        summary = Summary()
        summary.value.add(
            tag=tag,
            metadata=image_plugin.create_summary_metadata(None, None),
            # The layout of the image plugin: width, height, then the pictures
            tensor=make_tensor_proto(
                [str(W).encode(), str(H).encode(), png.getvalue()], dtype="string"
            ),
        )
        self._add(step, summary)

    def settings(self, step: int, values: Mapping, name: str) -> None:
        """Write hyperparameters of a training called `name`."""
        self._add(step, hparams_pb(values, trial_id=name))

    def _add(self, step: int, *summaries: Summary) -> None:
        joined = Summary()
        for summary in summaries:
            joined.MergeFrom(summary)
        self._write(Event(wall_time=time.time(), step=step, summary=joined))

    def _write(self, event: Event) -> None:
        self._records.write(event.SerializeToString())
        self._file.flush()


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
        # Files of earlier parts of the training have nothing to cut and stay as they
        # are.
        if whole and len(kept) == len(records):
            continue
        with atomic_path(path) as temporary:
            temporary.write_bytes(b"".join(kept))


def _read_records(path: Path) -> tuple[list[bytes], bool]:
    """Return the complete records of a file, and whether there are no others.

    A record is the length of its content, a checksum of the length, the content, and
    its checksum. The last is not computed: in Python it takes a second a megabyte, and
    a killed process leaves a short record, not a wrong one.
    """
    records: list[bytes] = []
    data = path.read_bytes()
    position = 0
    while position < len(data):
        if position + _HEADER.size > len(data):
            return records, False
        length, checksum = _HEADER.unpack_from(data, position)
        end = position + _HEADER.size + length + _FOOTER
        of_length = data[position : position + _HEADER.size - _FOOTER]
        if end > len(data) or masked_crc32c(of_length) != checksum:
            return records, False
        records.append(data[position:end])
        position = end
    return records, True


def _is_kept(record: bytes, step: int, validated: bool) -> bool:
    event = Event.FromString(record[_HEADER.size : -_FOOTER])
    # Values of the last update are logged before its checkpoint is written and stay.
    # Its scores go if the validation will be repeated.
    if event.step != step or validated:
        return event.step <= step
    tags = [value.tag for value in event.summary.value]
    return all(tag.startswith(_NOT_VALIDATED) for tag in tags)
