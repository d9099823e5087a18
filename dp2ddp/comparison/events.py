"""What a TensorBoard file says, as lines of text: tag, step and value of each event, without the time.

The format: records of length, checksum, data, checksum (tensorflow/core/lib/io/record_writer.h); data is an Event
(tensorflow/core/util/event.proto, framework/summary.proto), of which only these fields are read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from dp2ddp.comparison.clock_texts import is_time

Field = tuple[int, int | bytes]
_STEP, _SUMMARY, _VALUE = 2, 5, 1
_TAG, _NUMBER, _IMAGE, _HISTOGRAM, _TENSOR = 1, 2, 4, 5, 8
_TENSOR_FLOATS, _TENSOR_TEXTS = 5, 8


def is_event_file(path: str) -> bool:
    """Whether a file is TensorBoard's, by its name."""
    return Path(path).name.startswith("events.out.tfevents.")


def event_lines(path: Path) -> list[str]:
    """One line an event; a record that was cut off ends the file."""
    events = list(_events(path.read_bytes()))
    tags = {tag for tag, _, _ in events}
    # `train/data` beside `train/time` is the time that loading took
    loading = {tag for tag in tags if tag.endswith("data") and f"{tag.removesuffix('data')}time" in tags}
    return [
        f"{tag}, step {step}: {'<time>' if tag in loading or is_time(tag) else text}"
        for tag, step, text in events
    ]


def _events(data: bytes) -> Iterator[tuple[str, int, str]]:
    for record in _records(data):
        fields = dict(_fields(record))
        step, summary = fields.get(_STEP, 0), fields.get(_SUMMARY, b"")
        if isinstance(step, int) and isinstance(summary, bytes):
            values = (value for number, value in _fields(summary) if number == _VALUE)
            for tag, text in (_text_of(value) for value in values if isinstance(value, bytes)):
                yield tag, step, text


def _text_of(value: bytes) -> tuple[str, str]:
    """The tag of a value, and the value as text."""
    tag, text = "", "something"
    for number, content in _fields(value):
        if not isinstance(content, bytes):
            continue
        if number == _TAG:
            tag = content.decode(errors="replace")
        elif number == _NUMBER:
            text = repr(struct.unpack("<f", content)[0])
        elif number == _IMAGE:
            text = "image of " + " x ".join(
                str(size) for _, size in _fields(content) if isinstance(size, int)
            )
        elif number == _HISTOGRAM:
            # its smallest and largest value, count and sum; 5: squares; 6, 7: the buckets
            doubles = (each for number, each in _fields(content) if number <= 4 and isinstance(each, bytes))
            text = " ".join(["histogram", *(repr(struct.unpack("<d", each)[0]) for each in doubles)])
        elif number == _TENSOR:
            text = _tensor(content)
    return tag, text


def _tensor(tensor: bytes) -> str:
    texts = []
    for number, content in _fields(tensor):
        if number == _TENSOR_FLOATS and isinstance(content, bytes):
            texts += [repr(number) for (number,) in struct.iter_unpack("<f", content)]
        elif number == _TENSOR_TEXTS and isinstance(content, bytes):
            texts.append(content.decode(errors="replace"))
    return " ".join(texts)


def _records(data: bytes) -> Iterator[bytes]:
    start = 0
    while start + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, start)
        record = data[start + 12 : start + 12 + length]
        if len(record) < length:
            return
        yield record
        start += 16 + length


def _fields(message: bytes) -> Iterator[Field]:
    """The fields of a protocol buffer message (protobuf.dev/programming-guides/encoding)."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        kind = key & 7
        if kind == 0:
            value, place = _varint(message, place)
            yield key >> 3, value
            continue
        size = {1: 8, 5: 4}.get(kind)
        if size is None:
            size, place = _varint(message, place)
        yield key >> 3, message[place : place + size]
        place += size


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = message[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
