"""What a script does to the world outside: files, folders, processes, trackers. One run did it once; so must W ranks.

What W ranks would do instead: docs/semantics.md#printing and below. The tables hold qualified names; methods are
told by their names alone, so only names that mean one thing are in them.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from dp2ddp.codemod.facts.destinations import (
    MAKES_FILES,
    Destination,
    destination,
    destinations,
    has_path_looks,
    is_path,
)
from dp2ddp.codemod.facts.methods import method_called
from dp2ddp.codemod.facts.modules import Modules
from dp2ddp.codemod.facts.own_writers import OwnClass, own_class
from dp2ddp.codemod.facts.scopes import SCRIPT
from dp2ddp.codemod.facts.script import CallSite, Script, literal
from dp2ddp.codemod.facts.sinks import (
    DESCRIPTORS,
    FOLDERS_AND_FILES,
    FUNCTIONS,
    HANDLES,
    INTO_OPEN_FILES,
    MAY_SAVE,
    NO_SINKS,
    NO_WRITING_CLASS,
    OPENERS,
    PATH_METHODS,
    PROCESSES,
    READ_AND_WRITTEN,
    SAVES,
    TEMPORARY,
    TEMPORARY_NAMES,
    TEXT_METHODS,
    WRITING_CLASS,
)
from dp2ddp.codemod.facts.tables import of

TRACKERS = {
    *(
        "torch.utils.tensorboard.SummaryWriter",
        "torch.utils.tensorboard.writer.SummaryWriter",
        "torch.utils.tensorboard.FileWriter",
        "torch.utils.tensorboard.writer.FileWriter",
        "tensorboardX.SummaryWriter",
        "tensorboardX.writer.SummaryWriter",
    ),
    *(
        "visdom.Visdom",
        "tensorboard_logger.Logger",
    ),
}
WRITERS = {  # made by rank 0; nothing is read from them
    *("cv2.VideoWriter", "imageio.get_writer", "loguru.logger.add", "loguru.logger.configure"),
    *of("tensorboard_logger", "configure log_value"),
}
# Libraries whose modules, classes and functions are rank 0's as a whole (templates/tracking.py).
TRACKING = ("wandb", "mlflow", "swanlab", "neptune", "comet_ml", "clearml", "trains", "aim")
STARTS_TRAINING = (
    "wandb.agent",
    "swanlab.agent",
    "mlflow.projects.run",
)  # the tracker calls the script, not it them
QUESTIONS = ("builtins.input", "getpass.getpass", "sys.stdin.read", "sys.stdin.readline")
DEBUGGERS = (
    *("pdb.set_trace", "ipdb.set_trace", "builtins.breakpoint", "IPython.embed", "pdb.post_mortem"),
    *("pudb.set_trace", "code.interact"),
)
EXITS = ("os._exit", "os.abort", "os.kill", "os.fork")
STARTERS = (
    *(
        "threading.Thread",
        "threading.Timer",
        "multiprocessing.Process",
        "multiprocessing.Pool",
        "torch.multiprocessing.Process",
    ),
    *(
        "torch.multiprocessing.Pool",
        "torch.multiprocessing.spawn",
        "multiprocessing.pool.ThreadPool",
        "multiprocessing.dummy.Pool",
    ),
    *("concurrent.futures.ThreadPoolExecutor", "concurrent.futures.ProcessPoolExecutor"),
)

FILE_MODE = r"[wax][bt]?\+?|[wax]\+[bt]?|r[bt]?\+[bt]?"
DEPTH = 6  # objects that come from objects end somewhere
QUIET_LIBRARIES = (
    "sys.",
    "os.",
    "typing.",
    "logging.",
    "warnings.",
    "tempfile.",
    *(f"{name}." for name in TRACKING),
)


@dataclass(frozen=True, eq=False)
class Effect:
    """A call that acts on the world outside, or a mention of a function that would."""

    call: CallSite
    kind: (
        str  # open, opener, read and written, save, file, process, saver, tracker, writer, handler, log file
    )
    made: OwnClass | None = (
        None  # the class of the project that is called; the call's name is that of its base
    )


def find_effects(script: Script, modules: Modules) -> tuple[Effect, ...]:
    finder = _Finder(script, modules)
    kinds = ((call, finder.kind(call)) for call in script.calls)
    effects = (Effect(call, kind) if kind else finder.own_object(call) for call, kind in kinds)
    return tuple(effect for effect in effects if effect)


class _Finder:
    """The effects of one file."""

    def __init__(self, script: Script, modules: Modules) -> None:
        self.script = script
        self.modules = modules
        self.own_methods = {name for script in modules.scripts for name in script.own_methods}

    def kind(self, call: CallSite) -> str | None:
        name = call.name or ""
        if name in OPENERS:
            nowhere = _is_nowhere(self.script, call.argument(0, "file"))
            return "open" if writes(call.argument(1, "mode")) and not nowhere else None
        if name in READ_AND_WRITTEN:
            return "read and written" if self._is_written(call) else None
        if name == "os.open":
            return "read and written" if _describes_writing(call) else None
        if name in TEMPORARY:
            return "temporary"
        for kind, names in _TABLE:
            if name in names:
                return kind
        if name == "logging.basicConfig" and call.keyword("filename"):
            return "log file"
        if name in HANDLES:
            return self._kind_of_handle(call)
        if name in FUNCTIONS:
            return self._kind_of_saver(call)
        return self._kind_of_method(call) if call.name is None else self._kind_by_looks(call)

    def own_object(self, call: CallSite) -> Effect | None:
        """An object of a class of the project: by the first of its bases that writes."""
        if call.name is None or not (call.name.startswith(SCRIPT) or self.modules.is_local(call.name)):
            return None
        made = own_class(self.modules, self.script, call.node.func)
        for base in made.bases if made else ():
            as_base = CallSite(call.node, base, call.method)
            if made and (kind := self._kind_by_base(as_base, made)):
                return Effect(as_base, kind, made)
        return None

    def _kind_by_base(self, call: CallSite, made: OwnClass) -> str | None:
        name = call.name or ""
        if name in TEMPORARY:
            return "own writer"
        if not made.made_by or name not in {*HANDLES, *READ_AND_WRITTEN}:
            return self.kind(call)
        place, keyword, usual = {**HANDLES, **READ_AND_WRITTEN}[name]
        modes = [_mode_given(inner, place, keyword, usual) for inner in made.calls_of_base]
        if modes and all(literal(mode) == "r" or name in HANDLES and not writes(mode) for mode in modes):
            return None
        is_known = modes and name in HANDLES and all(isinstance(literal(mode), str) for mode in modes)
        return "opener" if is_known else "own writer"

    def _kind_of_handle(self, call: CallSite) -> str | None:
        """What is opened by its name, in a mode that writes; what is given an open file only passes it on."""
        place, keyword, usual = HANDLES[call.name or ""]
        mode = call.argument(place, keyword)
        if destinations(self.script, call.node) & {Destination.OPEN_FILE}:
            return None
        return "opener" if writes(mode if mode is not None else ast.Constant(usual)) else None

    def _is_written(self, call: CallSite) -> bool:
        """A memory map or a shelf by its mode; a database, if anything is committed or put into it."""
        calls = self.script.calls
        if call.name == "sqlite3.connect":
            return any(call.method == "commit" for call in calls) or any(
                map(_is_in_with, _mentions_of(self, call))
            )
        if call.name == "lmdb.open":
            written = any(
                literal(call.argument(None, "write")) is True for call in calls if call.method == "begin"
            )
            return written and literal(call.argument(None, "readonly")) is not True
        place, keyword, usual = READ_AND_WRITTEN[call.name or ""]
        mode = call.argument(place, keyword)
        text = usual if mode is None else literal(mode)
        letters = "w+" if "memmap" in (call.name or "") else "wcn"  # "c" is a copy, or makes a file
        return not isinstance(text, str) or any(letter in text for letter in letters)

    def _kind_of_saver(self, call: CallSite) -> str | None:
        """Something that writes wherever it is told to: where that is open already, each rank has it for itself."""
        given = destinations(self.script, call.node)
        if Destination.OPEN_FILE in given:
            return None
        return "saver" if Destination.PATH in given or not self._opens_files else "saver or open file"

    @cached_property
    def _opens_files(self) -> bool:
        """Whether anything in the project may be an open file that a function is given."""
        return any(call.name in MAKES_FILES for script in self.modules.scripts for call in script.calls)

    def _kind_by_looks(self, call: CallSite) -> str | None:
        """A function of a library that is in no table."""
        name = call.name or ""
        last = name.rpartition(".")[2]
        if (
            name.startswith(("builtins.", SCRIPT, *QUIET_LIBRARIES))
            or name in INTO_OPEN_FILES
            or last in NO_SINKS
        ):
            return None
        if "." not in name or self.modules.is_local(name):
            return None
        if last[:1].isupper() or last == "open" or last.startswith("open_"):
            return self._kind_of_unknown_handle(call, name, last)
        return self._kind_of_unknown_saver(call, last)

    def _kind_of_unknown_handle(self, call: CallSite, name: str, last: str) -> str | None:
        """`lib.open(path, "w")`, `lib.File(path, mode="a")`, `lib.FFmpegWriter(path)`."""
        first = destination(self.script, call.argument(0))
        mode = literal(call.argument(1, "mode"))
        if isinstance(mode, str) and re.fullmatch(FILE_MODE, mode):
            opens = last.startswith("open") and first is not Destination.OPEN_FILE
            return "opener" if opens or first is Destination.PATH else None
        is_writer = WRITING_CLASS.match(last) and not name.startswith(NO_WRITING_CLASS)
        return "opener" if is_writer and call.node.args and first is not Destination.OPEN_FILE else None

    def _kind_of_unknown_saver(self, call: CallSite, verb: str) -> str | None:
        """By its verb; one that need not be about files by a path, or where a library is surely given something."""
        given = (*call.node.args, *(keyword.value for keyword in call.node.keywords))
        if SAVES.match(verb):
            if given:
                return self._kind_of_saver(call)
            return "saver of who knows what" if verb.startswith("save") else "saver"  # `path.makedirs_p()`
        if not MAY_SAVE.match(verb) or Destination.OPEN_FILE in destinations(self.script, call.node):
            return None
        if any(has_path_looks(self.script, argument) for argument in given):
            return "saver"
        is_used = not isinstance(self.script.scopes.parents[call.node], ast.Expr)
        if is_used or verb.startswith("dump"):  # `Pickler(file).dump(x)`
            return None
        if call.name:
            return self._kind_of_saver(call) if len(given) > 1 else None
        function = self._function(call)
        foreign = function is not None and self._is_foreign(call, function.value)
        return self._kind_of_saver(call) if given and foreign else None

    def _kind_of_method(self, call: CallSite) -> str | None:
        """`frame.to_csv(...)`, `Path(...).mkdir()`: where the method is not one of the script's own classes."""
        function = self._function(call)
        if function is None or self._is_own(call, function):
            return None
        method = function.attr
        if method in TEXT_METHODS:
            return "file"
        if method in PATH_METHODS and is_path(self.script, function):
            return "file"
        if method == "open":
            written = writes(call.argument(0, "mode")) and _opens_path(self.script, call, function)
            return "path open" if written and function is call.node.func else None
        # importlib.import_module("tensorboardX").SummaryWriter(...)
        if method == "SummaryWriter":
            return "tracker"
        # `file.write("a.png")` writes this text into a file
        if method in {*NO_SINKS, "write"} or not (SAVES.match(method) or MAY_SAVE.match(method)):
            return None
        return None if self._is_made_once(function.value) else self._kind_of_unknown_saver(call, method)

    def _is_made_once(self, owner: ast.AST) -> bool:
        """Whether rank 0 alone has an object: the others' stand-in takes every call."""
        made = self.script.scopes.value(owner)
        kinds = (
            self.kind(call) for call in self.script.calls if call.node is made and call.node is not owner
        )
        return next(kinds, None) in ("opener", "tracker", "handler", "rotating")

    def _function(self, call: CallSite) -> ast.Attribute | None:
        """The method that is called, also by a name for it: `save = image.save; save(path)`."""
        value = self.script.scopes.value(call.node.func)
        return value if isinstance(value, ast.Attribute) else None

    def _is_own(self, call: CallSite, function: ast.Attribute) -> bool:
        """A method of the user's own classes; what a wrapper holds (`net.module.save()`) is the user's, too."""
        owner = function.value
        if isinstance(owner, ast.Attribute) and owner.attr == "module":
            return True
        return function.attr in self.own_methods and not self._is_foreign(call, owner)

    def _is_foreign(self, call: CallSite, owner: ast.AST | None, depth: int = DEPTH) -> bool:
        """Whether an object surely is a library's: `Image.fromarray(x)`, `plt.figure()`, `ToPILImage()(x)`."""
        owner = self.script.scopes.value(owner)
        if not isinstance(owner, ast.Call) or not depth:
            return False
        function = owner.func
        name = self.script.scopes.name(function)
        if name == "builtins.super":
            return method_called(self.script, call.node) is None
        if name is not None:
            return not name.startswith((SCRIPT, "builtins.")) and not self.modules.is_local(name)
        inner = function.value if isinstance(function, ast.Attribute) else function
        return self._is_foreign(call, inner, depth - 1)


def writing_base(made: OwnClass) -> str | None:
    """The base by which every object of a class writes, whatever it is given."""
    for name in made.bases:
        writes_by_looks = WRITING_CLASS.match(name.rpartition(".")[2]) and not name.startswith(
            NO_WRITING_CLASS
        )
        if writes_by_looks or any(name in names for kind, names in _TABLE if kind in _OBJECTS):
            return name
    return None


def _mode_given(call: CallSite, place: int | None, keyword: str, usual: str) -> ast.expr:
    """The mode that a base is given by `super().__init__(...)`, `Base.__init__(self, ...)`, `...__new__(cls, ...)`."""
    is_super = isinstance(call.node.func, ast.Attribute) and isinstance(call.node.func.value, ast.Call)
    shifted = place if place is None or is_super and call.method == "__init__" else place + 1
    given = call.argument(shifted, keyword)
    return given if given is not None else ast.Constant(usual)


def _is_nowhere(script: Script, path: ast.expr | None) -> bool:
    """`open(os.devnull, "w")`: nothing is left of what is written there."""
    return script.scopes.name(path) == "os.devnull" or literal(path) == os.devnull


def _mentions_of(finder: _Finder, call: CallSite) -> Iterator[ast.AST]:
    """Where the object that a call makes is used by its name."""
    target = finder.script.scopes.parents[call.node]
    names = {node.id for node in getattr(target, "targets", ()) if isinstance(node, ast.Name)}
    for node in finder.script.nodes(ast.Name):
        if isinstance(node, ast.Name) and node.id in names:
            yield finder.script.scopes.parents[node]


def _is_in_with(node: ast.AST) -> bool:
    """`with connection:` commits at its end."""
    return isinstance(node, ast.withitem)


def _describes_writing(call: CallSite) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr in DESCRIPTORS for node in ast.walk(call.node))


def _opens_path(script: Script, call: CallSite, function: ast.Attribute) -> bool:
    """`path.open(mode)`: the object is a path, or else the first argument is nothing but a file mode."""
    mode = literal(call.argument(0, "mode"))
    is_mode = isinstance(mode, str) and re.fullmatch(r"[wax][bt]?\+?|[wax]\+[bt]?", mode) is not None
    return is_path(script, function) or is_mode


_TABLE: tuple[tuple[str, set[str] | tuple[str, ...]], ...] = (
    ("save", ("torch.save",)),
    ("file", {*FOLDERS_AND_FILES, "logging.config.dictConfig", "logging.config.fileConfig"}),
    ("process", PROCESSES),
    ("tracker", TRACKERS),
    ("writer", WRITERS),
    ("handler", ("logging.FileHandler", "logging.handlers.WatchedFileHandler")),
    ("rotating", of("logging.handlers", "RotatingFileHandler TimedRotatingFileHandler BaseRotatingHandler")),
    ("temporary name", TEMPORARY_NAMES),
    ("background process", ("subprocess.Popen",)),
)

_OBJECTS = ("tracker", "writer", "handler", "rotating")


def writes(mode: ast.expr | None) -> bool:
    """Whether a file mode writes; a mode that cannot be read off might."""
    if mode is None:
        return False
    text = literal(mode)
    return not isinstance(text, str) or any(letter in text for letter in "wax+")


def downloads(script: Script) -> Iterator[CallSite]:
    """Calls with `download=True`, or a download that depends: every rank would fetch at the same time."""
    for call in script.calls:
        keyword = call.keyword("download")
        if (
            keyword
            and literal(keyword.value) not in (False, None)
            or keyword
            and not isinstance(keyword.value, ast.Constant)
        ):
            yield call
