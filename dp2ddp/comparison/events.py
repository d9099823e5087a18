"""What a TensorBoard file says, as lines of text: tag, step and value of each event, without the time.

The format: records of length, checksum, data, checksum (tensorflow/core/lib/io/record_writer.h); data is an Event
(tensorflow/core/util/event.proto, framework/summary.proto), of which only these fields are read.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dp2ddp.comparison.clock_texts import is_time

# of a protocol buffer message: number -> values, which are whole numbers or bytes, as the number says
Fields = Mapping[int, list[Any]]
_STEP, _SUMMARY, _VALUE, _TAG = 2, 5, 1, 1  # of an event, of it, of a summary, of a value


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
    start = 0
    while start + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, start)
        record = data[start + 12 : start + 12 + length]
        if len(record) < length:
            return
        start += 16 + length
        event = _fields(record)
        for value in (each for summary in event[_SUMMARY] for each in _fields(summary)[_VALUE]):
            fields = _fields(value)
            texts = [say(_fields(each)) for number, say in _VALUES.items() for each in fields[number]]
            texts += [repr(number) for each in fields[_NUMBER] for number in _numbers("<f", each)]
            yield _decoded(fields[_TAG]), sum(event[_STEP]), "".join(texts) or "something"


def _histogram(fields: Fields) -> str:
    """Its smallest and largest value, count and sum; 5: squares; 6, 7: the buckets."""
    doubles = [number for field in range(1, 5) for each in fields[field] for number in _numbers("<d", each)]
    return " ".join(["histogram", *map(repr, doubles)])


def _image(fields: Fields) -> str:
    return "image of " + " x ".join(str(size) for field in range(1, 4) for size in fields[field])


def _tensor(fields: Fields) -> str:
    floats, texts = fields[5], fields[8]
    return " ".join(
        [*(repr(number) for each in floats for number in _numbers("<f", each)), _decoded(texts)]
    ).strip()


_NUMBER = 2
_VALUES: Mapping[int, Callable[[Fields], str]] = {4: _image, 5: _histogram, 8: _tensor}


def _numbers(kind: str, packed: bytes) -> Iterator[float]:
    return (number for (number,) in struct.iter_unpack(kind, packed))


def _decoded(texts: list[bytes]) -> str:
    return " ".join(text.decode(errors="replace") for text in texts)


def _fields(message: bytes) -> Fields:
    """The fields of a protocol buffer message (protobuf.dev/programming-guides/encoding)."""
    fields: dict[int, list[Any]] = defaultdict(list)
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        size = {1: 8, 5: 4}.get(key & 7)
        if size is None:
            number, place = _varint(message, place)
            if key & 7 == 0:
                fields[key >> 3].append(number)
                continue
            size = number
        fields[key >> 3].append(message[place : place + size])
        place += size
    return fields


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = message[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
