"""What writes: calls of which rank 0's alone may be seen outside."""

from __future__ import annotations

import ast
from functools import lru_cache

from dp2ddp.codemod.idiomatic.training import leading_to
from dp2ddp.codemod.knowledge.functions import TRACKING, Does, does, what_is
from dp2ddp.codemod.knowledge.methods import MethodDoes, method
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.program import Program

OPENERS = (Does.OPEN, Does.KEEP_STORE)
ASKS_FILES = {"exists", "isfile", "isdir", "is_file", "is_dir", "lexists"}
COMMANDS = ("os.system", "subprocess.run", "subprocess.call", "subprocess.check_call", "os.fsync")


def writes(module: Module, call: Call) -> bool:
    """Whether a call writes by itself (an opened file is another thing)."""
    kind = does(call.name)
    if kind in (Does.WRITE, Does.SAVE) or call.name in COMMANDS:
        return not (call.name or "").startswith("logging.") and not reads(call)
    known = method(call.method)
    if kind is not None or known not in (MethodDoes.WRITE, MethodDoes.WRITE_PATH):
        return False
    if call.method in module.program.methods or module.program.is_local(call.name):
        return False
    if (call.name or "").startswith(("torch.", "builtins.", *(f"{each}." for each in TRACKING))):
        return False
    return known is MethodDoes.WRITE_PATH or not call.is_bare


def opens_to_write(module: Module, call: Call) -> bool:
    """Whether a call opens a file whose mode says that it is written."""
    row = what_is(call.name)
    if row is not None and row.does is Does.OPEN:
        position: int | None = row.position
    elif row is None and method(call.method) is MethodDoes.OPEN and not module.program.is_local(call.name):
        if call.method in module.program.methods or (call.name or "").startswith(("torch.", "PIL.")):
            return False
        position = 0
    else:
        return False
    mode = call.argument(position, "mode")
    return (
        isinstance(mode, ast.Constant) and isinstance(mode.value, str) and bool(set(mode.value) & set("wax+"))
    )


def reads(call: Call) -> bool:
    """Whether a call reads files or looks for them (torch.load waits by itself: DDP707)."""
    names = (
        "os.listdir",
        "os.walk",
        "os.scandir",
        "glob.glob",
        "numpy.load",
        "pandas.read_csv",
        "subprocess.check_output",
    )
    is_command = call.name == "subprocess.run" and bool(
        call.keyword("stdout") or call.keyword("capture_output")
    )
    is_open = call.name == "builtins.open" and call.argument(1, "mode") is None
    return (
        call.name in names or call.method in ("read_text", "read_bytes", "iterdir") or is_command or is_open
    )


@lru_cache(maxsize=8)
def writing_functions(program: Program) -> frozenset[str]:
    """The names of functions that write, or call one that does."""
    return leading_to(program, may_write)


def may_write(module: Module, call: Call, functions: frozenset[str]) -> bool:
    """Whether a call writes, or leads to what does."""
    called = call.node.func
    name = call.method or (called.id if isinstance(called, ast.Name) else "")
    leads = name in functions and not (call.name or "").startswith(("torch.", "builtins."))
    return leads or writes(module, call) or opens_to_write(module, call) or is_download(call)


def is_download(call: Call) -> bool:
    """`CIFAR10(root, download=True)`, `torch.hub.load(...)`."""
    given = call.keyword("download")
    if given is not None:
        return not (isinstance(given.value, ast.Constant) and not given.value.value)
    return does(call.name) is Does.DOWNLOAD


def asks_for_absence(test: ast.expr) -> bool:
    """`not os.path.exists(path)`, also as a part of more."""
    for node in ast.walk(test):
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            match node.operand:
                case ast.Call(func=ast.Attribute(attr=name)) if name in ASKS_FILES:
                    return True
    return False
