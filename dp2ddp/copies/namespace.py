"""A mount namespace that the processes of one run share: in it, layers lie over the user's folders (overlayfs).

Whatever writes below such a folder (Python, sqlite, HDF5, a program that the script starts) writes into the layer,
which is a scratch folder of ours. Linux alone; without root it takes user namespaces, which most containers forbid.

`python namespace.py LAYERS` makes one and holds it until its stdin ends; `enter` takes this process into it.
Standard library only: this runs before anything else does. See unshare(2), setns(2) and the kernel's overlayfs page.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

_NEW_NAMESPACE, _NEW_USER = 0x00020000, 0x10000000  # linux/sched.h
_RECURSIVE, _PRIVATE = 1 << 14, 1 << 18  # linux/mount.h
READY = "ready"


class Layer(NamedTuple):
    """A folder of the user's; where what is written below it goes; a folder that overlayfs needs beside that."""

    folder: str
    upper: str
    work: str


def enter(holder: int) -> None:
    """Take this process, which must have one thread, into the namespace of another; nothing if it is there."""
    if _namespace_of("self", "mnt") == _namespace_of(holder, "mnt"):
        return
    kinds = [kind for kind in ("user", "mnt") if _namespace_of("self", kind) != _namespace_of(holder, kind)]
    here = os.getcwd()
    files = [os.open(f"/proc/{holder}/ns/{kind}", os.O_RDONLY) for kind in kinds]
    for file in files:
        call("setns", file, 0)
        os.close(file)
    os.chdir(here)  # entering leads to the root


def _namespace_of(process: int | str, kind: str) -> str:
    return os.readlink(f"/proc/{process}/ns/{kind}")


def main() -> None:
    """Make the namespace, say so, and hold it as long as somebody holds the other end of stdin."""
    layers = [Layer(*each) for each in json.loads(sys.argv[1])]
    try:
        _leave_namespace()
        call("mount", b"none", b"/", None, _RECURSIVE | _PRIVATE, None)
        for layer in layers:
            _lay(layer)
        answer = READY
    except OSError as error:
        answer = str(error)
    print(answer, flush=True)
    sys.stdin.read()


def _leave_namespace() -> None:
    """root needs no user namespace, in which it could not read what belongs to others."""
    try:
        call("unshare", _NEW_NAMESPACE)
    except PermissionError:
        user, group = os.getuid(), os.getgid()
        call("unshare", _NEW_NAMESPACE | _NEW_USER)
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)


def _lay(layer: Layer) -> None:
    """Folders are given by open files: in the options of a mount, a comma or a colon in a name means something."""
    with _opened(layer) as (folder, upper, work):
        options = f"lowerdir={folder},upperdir={upper},workdir={work}"
        try:
            _mount(folder, f"{options},redirect_dir=off")
        except OSError:  # who may not write trusted.* attributes; redirections are off then
            _mount(folder, f"{options},userxattr")


@contextmanager
def _opened(layer: Layer) -> Iterator[list[str]]:
    files = [os.open(path, os.O_RDONLY | os.O_DIRECTORY) for path in layer]
    try:
        yield [f"/proc/self/fd/{file}" for file in files]
    finally:
        for file in files:
            os.close(file)


def _mount(folder: str, options: str) -> None:
    call("mount", b"overlay", folder.encode(), b"overlay", 0, options.encode())


def call(name: str, *arguments: object) -> None:
    """A function of the C library; OSError if it says -1."""
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


if __name__ == "__main__":
    main()
