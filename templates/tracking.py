"""One run, one tracker (W&B, MLflow, ClearML, Comet, Aim, TensorBoard): rank 0 has it, and all ranks read the same."""

import os
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from .feed import answer_question
from .parted import with_wholes
from .process import RANK_PROCESS, alone, exchange, own_rank, set_random_streams, world_size
from .rank_zero_output import NullObject, as_exception, sendable

# What needs no answer: methods that write, names with a capital (they make pictures, tables, artifacts), and what is
# certainly an object. Rank 0 does it, and nobody waits.
WRITES = re.compile(
    r"(add|append|assign|alert|close|define|delete|end|extend|finish|flush|log|mark|report|save|send|set|track|unwatch"
    r"|upload|watch)(_|$)|autolog|display|get_logger|current_logger|summary$|pytorch$|plot$|[A-Z]"
)
# Methods that change what they are given: ClearML's options may come from its server.
CONNECTS = ("connect", "connect_configuration")
# Attributes that hold the settings of the run, which a script reads anywhere, in a forward or a worker, too.
SETTINGS = ("config", "hparams")
# Where a Tracker keeps what is its own: no attribute of anything is called so.
OWN = "a tracker's own"
PLAIN_VALUES = (str, bytes, int, float, complex, range, type(None))
PLAIN_MODULES = ("datetime", "decimal", "uuid", "pathlib", "numpy")


def tracker_on_rank_zero(factory: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A tracker's writer or run, made by rank 0; what any rank reads from it is what rank 0 reads."""
    return factory(*args, **kwargs) if world_size() == 1 else Tracker(factory)(*args, **kwargs)


def library_on_rank_zero(library: Any) -> Any:
    """A tracker's module, class or function, as rank 0 has it; itself where there is one process."""
    if library is None or "RANK" not in os.environ and RANK_PROCESS not in os.environ:
        return library
    return Tracker(library)


class Tracked(NamedTuple):
    """What a Tracker stands for."""

    thing: Any  # None where it is not here
    is_here: bool
    name: str  # of the attribute that it was
    text: str
    thread: int


class Tracker:
    """Stands on every rank for something of a tracker that rank 0 has (or, of a library, for rank 0's calls of it).

    All ranks run the same program, so each use is met by the same use on the others. Rank 0 alone writes, and nobody
    waits for that. A value that is read goes from rank 0 to all: a text, a number, a dict as a copy, any other object
    as another Tracker. Inside a thread, a worker or a function of rank 0 alone nothing is exchanged.
    """

    def __init__(self, thing: Any = None, is_here: bool = True, name: str = "", text: str = "") -> None:
        vars(self)[OWN] = Tracked(thing, is_here, name, text, threading.get_ident())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in CONNECTS:
            return lambda given, *args, **kwargs: connect(self, name, given, args, kwargs)
        if WRITES.match(name):
            return do_on_rank_zero(self, lambda thing: getattr(thing, name), name)
        return read_on_rank_zero(self, lambda thing: getattr(thing, name), name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = with_wholes((args, kwargs))
        if WRITES.match(vars(self)[OWN].name):
            return do_on_rank_zero(self, lambda thing: thing(*unwrap(args), **unwrap(kwargs)))
        return read_on_rank_zero(self, lambda thing: thing(*unwrap(args), **unwrap(kwargs)))

    def __setattr__(self, name: str, value: Any) -> None:
        value = with_wholes(value)
        do_on_rank_zero(self, lambda thing: setattr(thing, name, unwrap(value)))

    def __setitem__(self, key: Any, value: Any) -> None:
        value = with_wholes(value)
        do_on_rank_zero(self, lambda thing: thing.__setitem__(key, unwrap(value)))

    def __delitem__(self, key: Any) -> None:
        do_on_rank_zero(self, lambda thing: thing.__delitem__(key))

    def __getitem__(self, key: Any) -> Any:
        return read_on_rank_zero(self, lambda thing: thing[key])

    def __contains__(self, key: Any) -> bool:
        return bool(read_on_rank_zero(self, lambda thing: key in thing))

    def __len__(self) -> int:
        return int(read_on_rank_zero(self, len))

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Any]:
        items: list[Any] = []

        def collect(thing: Any) -> int:
            items.extend(thing)
            return len(items)

        count = read_on_rank_zero(self, collect)
        kept = Tracker(items, vars(self)[OWN].is_here)
        return iter([kept[index] for index in range(count)])

    def __enter__(self) -> Any:
        entered = do_on_rank_zero(self, lambda thing: thing.__enter__())
        return (
            entered if is_held_here(self) and vars(entered)[OWN].thing is not vars(self)[OWN].thing else self
        )

    def __exit__(self, *error: Any) -> None:
        do_on_rank_zero(self, lambda thing: thing.__exit__(*error) and None)

    def __str__(self) -> str:
        return str(vars(self)[OWN].thing) if vars(self)[OWN].is_here else str(vars(self)[OWN].text)

    __repr__ = __str__


def is_held_here(tracker: Tracker) -> bool:
    """Whether this process has it, or of a library, does what is asked of it."""
    return bool(vars(tracker)[OWN].is_here) and own_rank() == 0


def do_on_rank_zero(tracker: Tracker, question: Callable[[Any], Any], name: str = "") -> Tracker:
    """What rank 0 does, or looks up, without a word to the others; nothing on them."""
    if not is_held_here(tracker):
        return Tracker(None, False, name)
    with alone():
        return Tracker(question(vars(tracker)[OWN].thing), True, name)


def read_on_rank_zero(tracker: Tracker, question: Callable[[Any], Any], name: str = "") -> Any:
    """What rank 0 reads, on every rank: its value or its exception, and the random streams that have moved."""
    thing, is_here, _, _, thread = vars(tracker)[OWN]
    if world_size() == 1 or threading.get_ident() != thread:
        return question(thing) if is_here else NullObject()
    if own_rank() > 0:
        kind, value, error, streams = exchange(None)[0]
        set_random_streams(streams)
        if error is not None:
            raise as_exception(error)
        made: dict[str, Callable[[], Any]] = {
            "value": lambda: value, "same": lambda: tracker, "settings": lambda: Settings(None, value),
        }  # fmt: skip
        return made[kind]() if kind in made else Tracker(None, False, name, value)
    result, error, streams = answer_question(question, thing)
    kind, value, result = describe_result(tracker, result, name)
    exchange((kind, value, sendable(error), streams))
    if error is not None:
        raise error
    return result


def describe_result(tracker: Tracker, result: Any, name: str) -> tuple[str, Any, Any]:
    """How the others get to know a result of rank 0's: the kind, what is sent, and what rank 0 itself goes on with."""
    if isinstance(result, (type({}.keys()), type({}.values()), type({}.items()))):
        result = list(result)
    if is_plain(result):
        return "value", result, result
    if result is vars(tracker)[OWN].thing:
        return "same", None, tracker
    if name in SETTINGS and hasattr(result, "keys") and hasattr(result, "__getitem__"):
        values = settings_of(result)
        return "settings", values, Settings(result, values)
    return "object", str(result) if "__str__" in vars(type(result)) else "", Tracker(result, True, name)


def is_plain(value: Any) -> bool:
    """Whether a copy is as good as the thing: texts, numbers, times, and lists or dicts of them."""
    if type(value) in (list, tuple, set, frozenset):
        return all(map(is_plain, value))
    if type(value) is dict:
        return all(map(is_plain, value)) and all(map(is_plain, value.values()))
    return isinstance(value, PLAIN_VALUES) or type(value).__module__ in PLAIN_MODULES and not callable(value)


def unwrap(value: Any) -> Any:
    """Rank 0's own objects in the place of what stands for them: a tracker takes its own pictures and tables only."""
    if isinstance(value, Settings):
        value = vars(value)[OWN][0]
    if isinstance(value, Tracker):
        return vars(value)[OWN].thing
    if type(value) in (list, tuple):
        return type(value)(map(unwrap, value))
    if type(value) is dict:
        return {key: unwrap(item) for key, item in value.items()}
    return value


def connect(tracker: Tracker, name: str, given: Any, args: Any, kwargs: Any) -> Any:
    """A method that may change the options that it is given: afterwards all ranks have rank 0's."""

    def question(thing: Any) -> Any:
        getattr(thing, name)(given, *args, **kwargs)
        return {key: value for key, value in dict_of(given).items() if is_plain(value)}

    answer = read_on_rank_zero(tracker, question)
    if isinstance(answer, dict):
        dict_of(given).update(answer)
    return given


def dict_of(options: Any) -> dict[Any, Any]:
    """The dict of a dict, or of an object."""
    return options if isinstance(options, dict) else vars(options)


def settings_of(thing: Any) -> dict[Any, Any]:
    """The settings that can be sent."""
    values = {key: thing[key] for key in thing.keys()}  # noqa: SIM118 (it is no dict)
    return {key: value for key, value in values.items() if is_plain(value)}


class Settings:
    """The settings of a run (wandb.config): read on each rank without a word, changed by rank 0 for all."""

    def __init__(self, thing: Any, values: dict[Any, Any]) -> None:
        vars(self)[OWN] = Tracker(thing, thing is not None), values

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _, values = vars(self)[OWN]
        if name in values:
            return values[name]
        if name in ("keys", "values", "items", "get"):
            return getattr(values, name)
        if name == "as_dict":
            return lambda: dict(values)
        if name in ("update", "setdefaults", "setdefault", "pop"):
            return lambda *args, **kwargs: self.change(lambda thing: getattr(thing, name)(*args, **kwargs))
        raise AttributeError(f"the run has no setting {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        self.change(lambda thing: setattr(thing, name, value))

    def __setitem__(self, key: Any, value: Any) -> None:
        self.change(lambda thing: thing.__setitem__(key, value))

    def __getitem__(self, key: Any) -> Any:
        return vars(self)[OWN][1][key]

    def __contains__(self, key: Any) -> bool:
        return key in vars(self)[OWN][1]

    def __iter__(self) -> Iterator[Any]:
        return iter(vars(self)[OWN][1])

    def __len__(self) -> int:
        return len(vars(self)[OWN][1])

    def __str__(self) -> str:
        return str(vars(self)[OWN][1])

    def __reduce__(self) -> Any:
        return Settings, (None, dict(vars(self)[OWN][1]))

    def change(self, question: Callable[[Any], Any]) -> Any:
        """Let rank 0 change its settings; all ranks have what it then has."""

        def changed(thing: Any) -> tuple[Any, dict[Any, Any]]:
            result = question(thing)
            return result if is_plain(result) else None, settings_of(thing)

        tracker, values = vars(self)[OWN]
        answer = read_on_rank_zero(tracker, changed)
        if not isinstance(answer, NullObject):
            values.clear()
            values.update(answer[1])
            return answer[0]
        return None
