"""What writes and reads: calls of which rank 0's alone may be seen outside."""

import ast
from functools import lru_cache

from dp2ddp.codemod.idiomatic.looking import calls_one, is_true, leading_to
from dp2ddp.codemod.knowledge.functions import TRACKING, Does, does, what_is
from dp2ddp.codemod.knowledge.methods import MethodDoes, method
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.program import Program

COMMANDS = ("os.system", "subprocess.run", "subprocess.call", "subprocess.check_call", "os.fsync")
READERS = (
    *("os.listdir", "os.walk", "os.scandir", "glob.glob", "numpy.load", "torch.load", "pandas.read_csv"),
    "subprocess.check_output",
)
READING_METHODS = ("read_text", "read_bytes", "iterdir")
NO_WRITERS = ("torch.", "builtins.", *(f"{each}." for each in TRACKING))


def writes(module: Module, call: Call) -> bool:
    """Whether a call writes by itself (an opened file is another thing)."""
    kind, known, program, name = does(call.name), method(call.method), module.program, call.name or ""
    if kind in (Does.WRITE, Does.SAVE) or name in COMMANDS:
        return not name.startswith("logging.") and not reads(call)
    is_own = call.method in program.methods or program.is_local(name)
    if kind is not None or is_own or name.startswith(NO_WRITERS):
        return False
    return known is MethodDoes.WRITE_PATH or known is MethodDoes.WRITE and not call.is_bare


def opening_mode(module: Module, call: Call) -> str:
    """The mode in which a call opens a file, where the text tells it."""
    row, is_own = what_is(call.name), module.program.is_local(call.name)
    position = row.position if row is not None and row.does is Does.OPEN else None
    if row is None and method(call.method) is MethodDoes.OPEN and not is_own:
        position = None if (call.name or "").startswith(("torch.", "PIL.")) else 0
    mode = call.argument(position, "mode") if position is not None else None
    return mode.value if isinstance(mode, ast.Constant) and isinstance(mode.value, str) else ""


def reads(call: Call) -> bool:
    """Whether a call reads files or looks for them."""
    asks = call.name == "subprocess.run" and (call.keyword("stdout") or call.keyword("capture_output"))
    is_open = call.name == "builtins.open" and call.argument(1, "mode") is None
    return bool(call.name in READERS or call.method in READING_METHODS or asks or is_open)


def is_folder(call: Call) -> bool:
    """Whether it makes a folder in a way that may find it there."""
    is_path = call.method == "mkdir" and does(call.name) is not Does.WRITE
    return call.name in ("os.makedirs", "pathlib.Path.mkdir") or is_path


def is_download(call: Call) -> bool:
    """`CIFAR10(root, download=True)`, `torch.hub.load(...)`."""
    given = call.keyword("download")
    return is_true(given.value) if given is not None else does(call.name) is Does.DOWNLOAD


def may_write(module: Module, call: Call) -> bool:
    """Whether a call writes, or leads to what does."""
    return _writes(module, call) or calls_one(module, call, _writing_functions(module.program))


@lru_cache(maxsize=8)
def _writing_functions(program: Program) -> frozenset[str]:
    return leading_to(program, _writes)


def _writes(module: Module, call: Call) -> bool:
    opens = set(opening_mode(module, call)) & set("wax+")
    return bool(opens) or writes(module, call) or is_download(call)
