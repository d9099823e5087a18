"""Threads, processes, pools and queues of the script's own: rank 0 has them, and every rank gets their answers."""

import argparse
import pickle
import threading
from operator import contains, delitem, getitem, setitem
from typing import Any, Callable, Dict, List

from .rank0 import ask_rank0
from .ranks import own_rank, together


def hold_on_rank0(kind: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Make a thread, a process or a queue on rank 0 alone; what stands for it elsewhere asks there."""
    if not together():
        return kind(*args, **kwargs)
    is_thread = isinstance(kind, type) and issubclass(kind, threading.Thread)
    handed = kwargs.get("args")
    of_target = handed if isinstance(handed, (tuple, list)) else ()
    for each in (*args, *kwargs.values(), *of_target) if is_thread else ():
        sampler = getattr(getattr(each, "_index_sampler", None), "sampler", None)
        loads = getattr(each, "_num_workers", getattr(each, "num_workers", None)) == 0
        if loads and type(sampler).__name__ == "RandomSampler":
            raise RuntimeError("a thread would draw random numbers by loading: give the loader num_workers=1")
    given = {name: itself(each) for name, each in kwargs.items()}
    return ask_held(HeldByRank0(kind), lambda kind: kind(*itself(args), **given), stays=True)


def method_on_rank0(function: Callable[..., Any]) -> Any:
    """A method of Python's own, which a function calls: it is asked of rank 0's object."""
    return lambda stands, *given: ask_held(stands, lambda held: function(held, *itself(given)))


class HeldByRank0:
    """Stands on every rank for an object that rank 0 has: what is asked of it is asked there, and all get the answer.

    The threads and processes of rank 0 speak to the object itself: ranks go side by side in their main threads alone.
    """

    def __init__(self, held: Any) -> None:
        vars(self)["held"] = held

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return ask_held(self, lambda held: getattr(held, name))

    def __setattr__(self, name: str, value: Any) -> None:
        ask_held(self, lambda held: setattr(held, name, itself(value)))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What it changes in options that it is given, all ranks find in theirs."""
        given = (
            vars(each) if isinstance(each, argparse.Namespace) else each for each in (*args, *kwargs.values())
        )
        options = [each for each in given if type(each) is dict]
        before = [dict(each) for each in options]
        answer = ask_held(self, lambda held: held(*itself(args), **itself(kwargs)))
        if options and together():
            for each, changed in zip(options, ask_rank0(lambda: [*map(changes, before, options)])):
                each.update(changed)
        return answer

    __iter__ = method_on_rank0(iter)
    __next__ = method_on_rank0(next)
    __len__ = method_on_rank0(len)
    __bool__ = method_on_rank0(bool)
    __str__ = method_on_rank0(str)
    __contains__ = method_on_rank0(contains)
    __getitem__ = method_on_rank0(getitem)
    __setitem__ = method_on_rank0(setitem)
    __delitem__ = method_on_rank0(delitem)

    def __enter__(self) -> Any:
        return ask_held(self, lambda held: held.__enter__())

    def __exit__(self, kind: Any, *rest: Any) -> Any:
        if kind is None:
            return ask_held(self, lambda held: held.__exit__(kind, *rest))
        # the other ranks may not come here
        return vars(self)["held"].__exit__(kind, *rest) if own_rank() == 0 else None


REPORTING = (
    *("wandb", "mlflow", "clearml", "trains", "comet_ml", "aim", "neptune", "swanlab", "tensorboard_logger"),
)


def held_if_it_reports(module: Any) -> Any:
    """A module whose name the text does not tell: rank 0's, where it reports a run."""
    name = getattr(module, "__name__", "")
    return HeldByRank0(module) if name.partition(".")[0] in REPORTING else module


def itself(given: Any) -> Any:
    """What is handed to an object of rank 0, with rank 0's own objects in the places of those that stand for them."""
    if isinstance(given, HeldByRank0):
        return vars(given)["held"]
    if type(given).__name__ in ("Rank0Batches", "FollowedBatches"):
        return given.batches[0]
    if type(given) in (tuple, list):
        return type(given)(itself(each) for each in given)
    if type(given) is dict and any(isinstance(each, HeldByRank0) for each in given.values()):
        return {key: itself(each) for key, each in given.items()}
    return given


def changes(before: Dict[Any, Any], now: Dict[Any, Any]) -> Dict[Any, Any]:
    return {key: each for key, each in now.items() if key not in before or each is not before[key]}


def ask_held(stands: HeldByRank0, question: Callable[[Any], Any], stays: bool = False) -> Any:
    """What rank 0's object answers, on every rank; its error too. The script's random numbers go on as rank 0's do.

    What stays on rank 0, because no other process can have a copy of it or because that is asked for, is asked there.
    """
    held = vars(stands)["held"]
    if not together():
        return question(held)
    kept: List[Any] = [None]  # what rank 0's object answers, on rank 0

    def ask() -> Any:
        kept[0] = answer = question(held)
        is_own = stays or callable(answer) or hasattr(answer, "__next__") or not can_be_sent(answer)
        return None if is_own else answer, is_own

    answer, is_own = ask_rank0(ask)
    return HeldByRank0(kept[0]) if is_own else answer


def can_be_sent(answer: Any) -> bool:
    """Whether other processes can have a copy of it; a lock, a pool, the end of a pipe, what a manager has stay."""
    if hasattr(answer, "fileno") or hasattr(answer, "_callmethod"):
        return False
    try:
        pickle.loads(pickle.dumps(answer))
    except Exception:
        return False
    return True
