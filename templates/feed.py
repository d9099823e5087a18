"""Data that one rank reads for all: generators, queues and streams that ranks could not each read alike."""

import threading
from collections.abc import Callable
from typing import Any

from .parted import part_whole, partable_in, with_wholes
from .process import all_ranks_are_here, own_rank, random_streams, set_random_streams, world_size
from .rank_zero_output import as_exception, attempt, sendable
from .replicas import changed_streams
from .shared import SocketLine, pack_batch, unpack_batch


def feed(source: Any) -> Any:
    """The same generator, queue or stream, read by rank 0 alone: every rank gets what rank 0 reads.

    Whatever the script asks of it (the next item, get(), len) is done on rank 0, and the result, or the
    exception, or the end of the data, comes to all ranks: on a node they map its memory, as shared batches. The
    script's random streams go on as rank 0's do. On ranks > 0 an item is a copy, and a large one on rank 0, too.
    Loaders have a way of their own (share).
    """
    if world_size() == 1:
        return source
    return Fed(source)


class Fed:
    """Stands on every rank for something that rank 0 has: each question is answered by rank 0.

    Questions from another thread than the one that made it are not the script's own, in which the ranks go side
    by side: a thread that fills a queue runs on rank 0 alone, and speaks to the queue itself.
    """

    def __init__(self, source: Any) -> None:
        vars(self).update(source=source, thread=threading.get_ident())

    def __iter__(self) -> Any:
        return ask_rank_zero(self, lambda source, _: iter(source))

    def __next__(self) -> Any:
        return ask_rank_zero(self, lambda source, _: next(source))

    def __len__(self) -> int:
        return int(ask_rank_zero(self, lambda source, _: len(source)))

    def __bool__(self) -> bool:
        return bool(ask_rank_zero(self, lambda source, _: bool(source)))

    def __getitem__(self, key: Any) -> Any:
        return ask_rank_zero(self, lambda source, whole: source[whole], key)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return ask_rank_zero(self, lambda source, whole: source(*whole[0], **whole[1]), (args, kwargs))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return ask_rank_zero(self, lambda source, _: getattr(source, name))

    def __setattr__(self, name: str, value: Any) -> None:
        ask_rank_zero(self, lambda source, whole: setattr(source, name, whole), value)

    def __enter__(self) -> Any:
        return ask_rank_zero(self, lambda source, _: source.__enter__())

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> Any:
        if kind is None:
            return ask_rank_zero(self, lambda source, _: source.__exit__(kind, *rest))
        source = vars(self)["source"]  # the other ranks may not come here
        return source.__exit__(kind, *rest) if own_rank() == 0 else None


def ask_rank_zero(fed: Fed, question: Callable[[Any, Any], Any], given: Any = None) -> Any:
    """What rank 0 answers; every rank comes here, unless a thread of rank 0 has a question of its own.

    The question is asked of the source, and of what the script gives with it.
    """
    source, thread = vars(fed)["source"], vars(fed)["thread"]
    if world_size() == 1 or threading.get_ident() != thread:
        return question(source, given)
    whole = with_wholes(given)
    return (
        send_answer(*answer_question(lambda of: question(of, whole), source))
        if own_rank() == 0
        else receive_answer()
    )


def answer_question(question: Callable[[Any], Any], source: Any) -> tuple[Any, Any, dict[str, Any]]:
    """The result, or the error, and the random streams that have moved. On rank 0, which is alone meanwhile."""
    before = random_streams()
    result, error = attempt(lambda: question(source))
    return result, error, changed_streams(random_streams(), before)


def send_answer(result: Any, error: Any, streams: dict[str, Any]) -> Any:
    """Hand rank 0's answer to the others, and return or raise it. Of large tensors each rank sees its own rows."""
    line, which = SocketLine.between_ranks(), partable_in(result) if all_ranks_are_here() else []
    try:
        if callable(result) or hasattr(result, "__next__"):  # it stays on rank 0: a method, an iterator
            raise TypeError
        packed = pack_batch((result, sendable(error), streams, True, which), by_workers=False)
    except Exception:
        packed = pack_batch((None, sendable(error), streams, False, []), by_workers=False)
        result, which = Fed(result), []
    if any(which):  # a thread may fill the memory anew while ranks still read it
        result = part_whole(unpack_batch(packed)[0], which)
    line.pass_on(packed)
    if error is not None:
        raise error
    return result


def receive_answer() -> Any:
    """Rank 0's answer on another rank."""
    result, error, streams, sent, which = SocketLine.between_ranks().receive()
    set_random_streams(streams)
    if error is not None:
        raise as_exception(error)
    return part_whole(result, which) if sent else Fed(None)
