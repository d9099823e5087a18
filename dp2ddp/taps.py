"""Where attributes of torch are replaced: each once, with what is done before, after and around it.

Recorder, heartbeat, nudge, clock and counter follow the same functions: the first that comes puts a tap in the place of
a function, and all subscribe to it. Whoever subscribes last is outermost; the order is that of runtime/process/boot.py.

Any throughout: owners are modules and classes of torch, functions take and return whatever torch's do.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_ABSENT = object()
_TAP = "_dp2ddp_tap"

Function = Callable[..., Any]
"""A function of torch, with whatever it takes and returns."""
Around = Callable[..., Any]
"""Called with the function that it goes around, and then what that is called with."""


class Taps:
    """Replaced attributes; `undo` puts the old ones back, newest first."""

    def __init__(self) -> None:
        self._undos: list[Callable[[], object]] = []

    def before(self, name: str, see: Callable[..., object], *owners: Any) -> None:
        """Call `see` with what `owner.name` is called with, before it."""

        def call(function: Any, /, *args: Any, **kwargs: Any) -> Any:
            see(*args, **kwargs)
            return function(*args, **kwargs)

        self.around(name, call, *owners)

    def after(self, name: str, see: Callable[..., object], *owners: Any) -> None:
        """Call `see` with what `owner.name` returned, and with what it was called with."""

        def call(function: Any, /, *args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            see(result, *args, **kwargs)
            return result

        self.around(name, call, *owners)

    def around(self, name: str, call: Around, *owners: Any) -> None:
        """Call `call` in the place of a function that all the owners hold, with that function first."""
        original = getattr(owners[0], name)
        # that of a base class is another one: who subscribes to it hears of all that derive from it
        tap = (name in vars(owners[0]) and _tap_of(original)) or _Tap(original)
        static = isinstance(inspect.getattr_static(owners[0], name), (staticmethod, classmethod))
        for owner in owners:
            if getattr(owner, name) is not tap.function:
                self.set(owner, name, staticmethod(tap.function) if static else tap.function)
        self.on_undo(tap.subscribe(call))

    def everywhere(self, owner: Any, calls: Mapping[str, Around]) -> None:
        """The same for functions of a module, in every module that holds one of them: `from ... import` took it there.

        All in one go: there are 2,000 modules. Not taken back.
        """
        originals = {name: getattr(owner, name) for name in calls if hasattr(owner, name)}
        for name in originals:
            self.around(name, calls[name], owner)
        for module in sys.modules.copy().values():
            if type(module) is not ModuleType:
                continue  # a subclass may import something, or warn, when it is asked
            for name in vars(module).keys() & originals.keys():
                if vars(module)[name] is originals[name]:
                    setattr(module, name, getattr(owner, name))

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Set `owner.name`."""
        # vars(): a class attribute must come back as the staticmethod that it was, not as its function.
        before = vars(owner).get(name, _ABSENT)
        setattr(owner, name, value)
        self.on_undo(lambda: _put_back(owner, name, before))

    def set_all(self, owner: Any, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            self.set(owner, name, value)

    def on_undo(self, undo: Callable[[], object]) -> None:
        self._undos.append(undo)

    def undo(self) -> None:
        """Put everything back as it was, the last change first."""
        while self._undos:
            self._undos.pop()()


class _Tap:
    """What stands in the place of one function."""

    def __init__(self, original: Any) -> None:
        self._original, self._calls = original, list[Around]()
        self._whole = original

        @functools.wraps(original)
        def function(*args: Any, **kwargs: Any) -> Any:
            return self._whole(*args, **kwargs)

        setattr(function, _TAP, self)
        self.function = function

    def subscribe(self, call: Around) -> Callable[[], None]:
        """Go around all who came before; returns what ends that."""
        self._calls.append(call)
        self._put_together()
        return lambda: self._leave(call)

    def _leave(self, call: Around) -> None:
        self._calls.remove(call)
        self._put_together()

    def _put_together(self) -> None:
        self._whole = functools.reduce(
            lambda inner, call: functools.partial(call, inner), self._calls, self._original
        )


def _tap_of(function: Any) -> _Tap | None:
    """The tap that stands there already; a script's own functools.wraps of it has the mark, too, and is none."""
    tap = getattr(function, _TAP, None)
    return tap if isinstance(tap, _Tap) and tap.function is function else None


def _put_back(owner: Any, name: str, before: Any) -> None:
    if before is _ABSENT:
        delattr(owner, name)
    else:
        setattr(owner, name, before)


class Inside(threading.local):
    """Whether this thread is within a function that is followed: what that calls in turn is its own affair."""

    yes = False

    @contextmanager
    def entered(self, yes: bool = True) -> Iterator[None]:
        before, self.yes = self.yes, yes
        try:
            yield
        finally:
            self.yes = before


def in_all_threads(taps: Taps, modes: Sequence[AbstractContextManager[Any]]) -> None:
    """Enter the modes in this thread for good, and in each that starts from now on, the first one lowest.

    torch keeps its stacks of modes per thread, and neither DataParallel's threads nor others inherit them. (Forked
    processes do.)
    """
    taps.on_undo(_entered(modes).close)

    def bootstrap(original: Any, thread: threading.Thread) -> None:
        with _entered(modes):
            original(thread)

    taps.around("_bootstrap_inner", bootstrap, threading.Thread)


def _entered(modes: Sequence[AbstractContextManager[Any]]) -> ExitStack:
    stack = ExitStack()
    for mode in modes:
        stack.enter_context(mode)
    return stack


# ---- what is done to a library as soon as the script imports it; it may be large, or not there

Act = Callable[[ModuleType], None]


def when_imported(name: str, act: Act) -> Callable[[], None]:
    """Act on a module now, if it is there, or once when it is loaded; returns what takes the latter back."""
    finder = _Finder(name, act)
    if name in sys.modules:
        act(sys.modules[name])
    else:
        sys.meta_path.insert(0, finder)
    return finder.leave


class _Finder(MetaPathFinder):
    """Lets the others find a module, and acts on it as soon as it is loaded."""

    def __init__(self, name: str, act: Act) -> None:
        self._name, self._act = name, act

    def leave(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        self.leave()  # cv2's own start imports "cv2" again
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def load_and_act(module: ModuleType) -> None:
            load(module)
            self._act(module)

        spec.loader.exec_module = load_and_act  # type: ignore[method-assign]
        return spec
