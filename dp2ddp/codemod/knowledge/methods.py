"""What methods, and functions of libraries that nobody has heard of, do: by what they are called."""

import re
from enum import Enum, auto

from dp2ddp.codemod.knowledge.reading_methods import words


class MethodDoes(Enum):
    """What a method does, by its name."""

    WRITE = auto()  # a file, whatever it is given
    MAY_WRITE = auto()  # a file, if nobody asks what comes back
    WRITE_PATH = auto()  # to the path that it is a method of
    CHANGE_PATH = auto()  # the same, where it is one: tables and tensors have methods of that name
    OPEN = auto()
    TRACK = auto()  # makes an object that writes
    SEED = auto()  # a generator, from the operating system where no seed is given
    DRAW = auto()  # random numbers, of a tensor


_WRITES = re.compile(
    r"(save|imsave|mimsave|imwrite|mimwrite|volwrite|savefig|savetxt|savez|savemat|mmwrite)(_|[A-Z]|$)"
    r"|to_(csv|excel|pickle|msgpack|parquet|hdf|feather|stata|sql|orc|netcdf|zarr|file|disk|json_file|wav|geojson)$"
    r"|(tofile|extractall|export_chrome_trace|export_stacks|export_memory_timeline|dump_stats|print_figure)$"
    r"|(makedirs|mkdir|removedirs|rmdir|rmtree|remove|unlink)_p$"  # of path.Path
)
_MAY_WRITE = re.compile(
    r"(write|dump|export|to_(json|html|latex|xml|markdown|yaml|dot|image|video|mesh|ply|obj))(_|[A-Z]|$)"
)
# Of open files, of autograd, and of what remembers its arguments.
_WRITES_NONE = words(
    "write writelines write_line write_scalar write_only export_params",
    "save_for_backward save_for_forward save_on_cpu save_hyperparameters",
)
_OF_PATHS = words("write_text write_bytes mkdir unlink rmdir touch symlink_to hardlink_to rmtree")
_OF_PATHS_AND_OTHERS = words("rename replace chmod")
_DRAWS = words(
    "normal_ uniform_ bernoulli_ random_ exponential_ geometric_ log_normal_ cauchy_ bernoulli multinomial"
)
_BY_NAME = {
    **dict.fromkeys(_WRITES_NONE),
    **dict.fromkeys(_OF_PATHS, MethodDoes.WRITE_PATH),
    **dict.fromkeys(_OF_PATHS_AND_OTHERS, MethodDoes.CHANGE_PATH),
    **dict.fromkeys(_DRAWS, MethodDoes.DRAW),
    **dict.fromkeys(["SummaryWriter"], MethodDoes.TRACK),
    **dict.fromkeys(["seed"], MethodDoes.SEED),
    **dict.fromkeys(["open"], MethodDoes.OPEN),
}
# `FFmpegWriter(path)`, of a library: what it makes writes. Not csv's, which is given an open file.
WRITING_CLASS = re.compile(r"(?!csv\.|torch\.|io\.).*\.[A-Z]\w*Writer")
WRITING_MODE = re.compile(r"[wax][bt]?\+?|[wax]\+[bt]?|r[bt]?\+[bt]?")


def method(name: str) -> MethodDoes | None:
    """What a method of an object that is not known does."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    if _WRITES.match(name):
        return MethodDoes.WRITE
    return MethodDoes.MAY_WRITE if _MAY_WRITE.match(name) else None
