"""A net under the conversion: where a rank beside rank 0 writes a file of the script's, it is reported."""

import functools
import os
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

# Events that change files, and which of their arguments are paths (Python's audit events table).
CHANGES = {"open": (0,), "os.mkdir": (0,), "os.remove": (0,), "os.rmdir": (0,), "os.rename": (0, 1), "os.link": (1,),
           "os.symlink": (1,), "os.truncate": (0,), "sqlite3.connect": (0,)}  # fmt: skip

# Environment variable that turns the warning off, whatever its value.
SILENT = "DDP_SILENT_WRITES"

# Environment variables with folders of caches, which are made to be shared by processes.
CACHES = (
    "XDG_CACHE_HOME",
    "TORCH_HOME",
    "HF_HOME",
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "MPLCONFIGDIR",
)


def watch_writes(rank: int) -> None:
    """From now on, say on stderr where the script writes, makes, moves or removes a file on this rank.

    Rank 0 does the same, so it happens once a rank; nothing gave it to rank 0 alone. One line for each line of the
    script. Temporary files, caches and devices are left out, and so are child processes (a loader's workers).
    """
    own, reported = os.getpid(), set[str]()
    spared, here = folders_to_spare(), f"{os.getcwd()}{os.sep}"
    kept = here if here.startswith(spared) else "\0"  # a script may be started in a temporary folder

    def see(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in CHANGES or os.getpid() != own or not is_writing(event, arguments):
            return
        for path in (arguments[index] for index in CHANGES[event]):
            if not isinstance(path, (str, bytes, os.PathLike)):
                continue  # a descriptor: the file was opened before
            whole = os.path.abspath(os.fsdecode(path))
            name = f"{whole}{os.sep}"
            if name.startswith(spared) and not name.startswith(kept) or "__pycache__" in whole:
                continue
            if event == "os.mkdir" and os.path.isdir(whole):
                continue  # nothing happens
            place = line_of_script(sys._getframe(1))
            if place:
                sys.audit("ddp.write", whole, place)  # whoever runs this may want to know
            if place and place not in reported and SILENT not in os.environ:
                reported.add(place)
                text = f"{place}: rank {rank} writes {whole}, as rank 0 does: nothing leaves it to rank 0"
                print(f"{text} ({SILENT}=1 hides this)\n", end="", file=sys.__stderr__, flush=True)

    sys.addaudithook(see)
    torch.save = torch.serialization.save = save_with_event(torch.save)


def is_writing(event: str, arguments: tuple[Any, ...]) -> bool:
    """Whether an event changes a file: one that is opened by its flags; in memory there is none.

    What is named in an open folder (by the descriptor that comes last) is a step of shutil.rmtree, seen anyway.
    """
    if event == "open":
        return isinstance(arguments[2], int) and bool(arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
    if event == "sqlite3.connect":
        return not any(word in str(arguments[0]) for word in (":memory:", "mode=ro", "mode=memory"))
    return event == "os.truncate" or arguments[-1] == -1


def folders_to_spare() -> tuple[str, ...]:
    """Temporary folders, caches, devices and Python itself."""
    home = os.path.expanduser("~")
    folders = [tempfile.gettempdir(), *filter(None, map(os.environ.get, CACHES)), sys.prefix, sys.base_prefix]
    folders += [
        os.path.join(home, name) for name in (".cache", ".config", ".local", ".triton", ".nv", ".keras")
    ]
    return tuple(f"{os.path.abspath(folder)}{os.sep}" for folder in (*folders, "/dev", "/proc", "/sys"))


def line_of_script(frame: "FrameType | None") -> str:
    """The innermost line that is neither Python's nor a library's; empty where there is none (a library's thread)."""
    paths = sysconfig.get_paths()
    python = ("<frozen", f"{paths['stdlib']}{os.sep}", f"{paths['platstdlib']}{os.sep}")
    while frame is not None:
        file = frame.f_code.co_filename
        library = file.startswith(python) or "site-packages" in file or "dist-packages" in file
        if not library and frame.f_code.co_name != "telling":
            return f"{os.path.basename(file)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def save_with_event(save: Callable[..., Any]) -> Callable[..., Any]:
    """torch.save, which writes in C++ without an event: libraries call it, too."""

    @functools.wraps(save)
    def telling(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(f, (str, os.PathLike)):
            sys.audit("open", f, "wb", os.O_WRONLY)
        return save(obj, f, *args, **kwargs)

    return telling
