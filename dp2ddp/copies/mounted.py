"""A layer over the user's folder, which only the run sees: the folder keeps its path, and nothing is copied."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Literal

import psutil

from dp2ddp.copies import namespace
from dp2ddp.copies.cloning import make_like
from dp2ddp.copies.disguise import is_stand_in
from dp2ddp.copies.leavings import FilesLeft, Original, changed, is_as_it_was, look_at
from dp2ddp.copies.namespace import READY, Layer
from dp2ddp.errors import RunError
from dp2ddp.source.folders import LinksOut, links_out
from dp2ddp.source.survey import is_left_out

SWITCH = "DP2DDP_MOUNTS"  # "0": go without
_REMOVED_TOLD = 1000  # files of a removed folder that are named, at most
_Change = Literal["written", "removed", "folders"]  # a file; a file; a folder that was made, or removed


@dataclass(frozen=True)
class MountedCopy:
    """What a run has in the place of a folder of the user's."""

    original: Path
    folder: Path  # where we find what the run sees
    layers: Sequence[Layer]
    put: Mapping[Path, bytes]  # files that were put there before the run, by their paths in the user's folder
    linked: tuple[Original, ...]  # files elsewhere that links lead to: no layer lies over them

    @property
    def inside(self) -> tuple[Path, ...]:
        """Where the run has it: all that is written below is caught."""
        return tuple(Path(layer.folder) for layer in self.layers)

    def left_behind(self) -> FilesLeft:
        """What the layers hold."""
        found: dict[_Change, set[str]] = {"written": set(), "removed": set(), "folders": set()}
        for layer in self.layers:
            for change, path in _changes(Path(layer.upper), Path(layer.folder)):
                name = os.path.relpath(path, self.original)
                if change != "written" or not self._is_as_it_was(path, self.folder / name):
                    found[change].add(name)
        written, removed = (tuple(sorted(found[each])) for each in ("written", "removed"))
        root = str(self.folder)[: -len(str(self.original))]
        return FilesLeft(self.folder, written, removed, frozenset(found["folders"]), root)

    def _is_as_it_was(self, path: Path, now: Path) -> bool:
        if is_stand_in(now) and os.path.realpath(now) == os.path.realpath(path):
            return True  # in a folder behind a link of the user's that was opened up
        if path in self.put:
            return now.is_file() and now.read_bytes() == self.put[path]
        return is_as_it_was(now, path)

    def changed_originals(self) -> tuple[Path, ...]:
        """Of what the layers cover none can; files elsewhere that only links lead to are asked."""
        return changed(self.linked)


def _changes(upper: Path, original: Path) -> Iterator[tuple[_Change, Path]]:
    """What of a folder a layer hides, replaces or adds.

    A name that is gone is a character device 0, 0; of a folder that was removed and made again nothing of the old one
    is seen any more, and an attribute says so.
    """
    is_new = not original.is_dir() or original.is_symlink()
    is_opaque = any(f"{space}.overlay.opaque" in os.listxattr(upper) for space in ("user", "trusted"))
    hidden = set(os.listdir(original)) - set(os.listdir(upper)) if is_opaque and not is_new else set()
    for name in sorted(hidden):
        yield from _removed(original / name)
    with os.scandir(upper) as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            path = original / entry.name
            state = entry.stat(follow_symlinks=False)
            if stat.S_ISCHR(state.st_mode) and state.st_rdev == 0:
                yield from _removed(path)
            elif stat.S_ISDIR(state.st_mode):
                if not is_left_out(entry.path):
                    if not path.is_dir() or path.is_symlink():
                        yield "folders", path
                    yield from _changes(Path(entry.path), path)
            elif stat.S_ISREG(state.st_mode) or stat.S_ISLNK(state.st_mode):
                yield "written", path


def _removed(path: Path) -> Iterator[tuple[_Change, Path]]:
    if not path.is_dir() or path.is_symlink():
        yield "removed", path
        return
    yield "folders", path
    below = (Path(folder) / name for folder, _, names in os.walk(path) for name in names)
    yield from (("removed", each) for each in islice(below, _REMOVED_TOLD))


@dataclass(frozen=True)
class Holder:
    """The process that holds a run's mounts. They are gone when it and the run have ended."""

    process: subprocess.Popen[str]
    layers: Sequence[Layer]

    def view(self, path: Path) -> Path:
        """Where we find what the run sees at a path."""
        return Path(f"/proc/{self.process.pid}/root{path}")

    def close(self) -> None:
        """End it; what the layers caught can be removed from now on. A second time it does nothing."""
        if self.process.stdin:
            self.process.stdin.close()
        self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()
        for layer in self.layers:
            for folder in Path(layer.work).glob("*"):
                folder.chmod(0o700)  # the kernel makes one that not even its owner may look into


def mount(
    trees: Mapping[Path, Path], files: Mapping[Path, bytes], room: Path
) -> tuple[list[MountedCopy], Holder]:
    """Lay a layer over each tree, with `files` in it from the start.

    trees: folder of the user's -> what lies under the layer, which is that folder or one above it.
    room: a folder for what is written. RunError where the system does not do it.
    """
    out = {folder: links_out(tree) for folder, tree in trees.items()}
    mine = {
        folder: _layers(tree, out[folder], room / f"layer{number}")
        for number, (folder, tree) in enumerate(trees.items())
    }
    every = [layer for layers in mine.values() for layer in layers]
    for path, data in files.items():
        _put(path, data, every)
    holder = _hold(every)
    copies = [
        MountedCopy(
            folder, holder.view(folder), layers, files, tuple(map(look_at, out[folder].files.values()))
        )
        for folder, layers in mine.items()
    ]
    return copies, holder


def _hold(layers: Sequence[Layer]) -> Holder:
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", namespace.__file__, json.dumps(layers)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,  # Ctrl-C is for us; the end of stdin ends it
    )
    holder = Holder(process, layers)
    answer = (process.stdout.readline() if process.stdout else "").strip()
    if answer != READY:
        holder.close()
        raise RunError(
            f"{layers[0].folder}: no layer could be laid over it ({answer or 'no answer'}); {SWITCH}=0 goes without"
        )
    return holder


def _layers(folder: Path, out: LinksOut, room: Path) -> list[Layer]:
    """One for the folder, one for each that links in it lead to, and one for each other file system mounted below."""
    layers = []
    places = [folder, *(each for each in out.folders if os.access(each, os.W_OK))]
    for number, point in enumerate(each for place in places for each in (place, *_mounted_below(place))):
        layer = Layer(str(point), str(room / f"{number}"), str(room / f"{number}.work"))
        make_like(point, Path(layer.upper))
        os.mkdir(layer.work)
        layers.append(layer)
    return layers


def _mounted_below(folder: Path) -> Iterable[Path]:
    """In the order in which they are to be mounted again."""
    points = {Path(each.mountpoint) for each in psutil.disk_partitions(all=True)}
    return sorted(point for point in points if folder in point.parents)


def _put(path: Path, data: bytes, layers: Sequence[Layer]) -> None:
    """Into the innermost layer; folders on the way look as the user's do."""
    layer = max(
        (each for each in layers if path.is_relative_to(each.folder)), key=lambda each: len(each.folder)
    )
    place = Path(layer.upper)
    for name in path.relative_to(layer.folder).parent.parts:
        place /= name
        if not place.exists():
            make_like(Path(layer.folder) / place.relative_to(layer.upper), place)
    (place / path.name).write_bytes(data)


@cache
def can_mount(folders: tuple[Path, ...], room: Path) -> bool:
    """Asked once: all runs of a trial have copies of one kind."""
    apart = not any(room.is_relative_to(folder) for folder in folders)  # a layer cannot lie over itself
    if sys.platform != "linux" or os.environ.get(SWITCH) == "0" or not apart:
        return False
    try:
        mount(dict(zip(folders, folders, strict=True)), {}, room)[1].close()
    except (RunError, OSError):
        return False
    finally:  # `close` has made all of it removable
        shutil.rmtree(room, ignore_errors=True)
    return True
