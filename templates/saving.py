"""torch.save that an interrupted run cannot harm: the old checkpoint stands until the new one is complete."""

import os
import shutil
from typing import Any

import torch


def save_completely(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
    """torch.save into a hidden folder beside the file, then moved into place: a kill leaves the old file.

    Only its owner may look into the folder; what a kill leaves there, the next save takes away. The file has its own
    name in it, which torch writes into the archive. Where there is no room for two files, or another file would not
    be the same to others, it is torch.save alone.
    """
    if not hasattr(f, "write") and may_be_replaced(f):
        place, name = os.path.split(os.fspath(f))
        folder = os.path.join(place, f".{name}.unfinished")
        unfinished = os.path.join(folder, name)
        shutil.rmtree(folder, ignore_errors=True)
        try:
            os.mkdir(folder, 0o700)
            if os.path.exists(f):
                make_alike(unfinished, f)
            torch.save(obj, unfinished, *args, **kwargs)
            with open(unfinished, "rb+") as file:
                os.fsync(file.fileno())  # or a crash of the machine might leave the new name and no content
            os.replace(unfinished, f)
            return
        except (OSError, RuntimeError):  # torch's way to say that the disk is full
            pass
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    torch.save(obj, f, *args, **kwargs)


def may_be_replaced(f: Any) -> bool:
    """Whether a file may be moved to this path: there is none, or a plain one, of one name, that may be written to."""
    if not os.path.lexists(f):
        return True
    is_plain = os.path.isfile(f) and not os.path.islink(f) and os.stat(f).st_nlink == 1
    return is_plain and os.access(f, os.W_OK)


def make_alike(path: str, old: Any) -> None:
    """An empty file with the owner, the group and the rights of an old one."""
    with open(path, "xb") as file:
        new, kept = os.fstat(file.fileno()), os.stat(old)
    if (new.st_uid, new.st_gid) != (kept.st_uid, kept.st_gid):
        os.chown(path, kept.st_uid, kept.st_gid)
    shutil.copystat(old, path)
