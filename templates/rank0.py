"""What rank 0 does for all."""

import io
import shutil
import tempfile
from typing import Any, Callable, List

import torch.distributed as dist

from .broadcast import Rank, tell_all
from .ranks import own_rank, ranks_apart, together
from .streams import host_streams, set_host_streams


def ask_rank0(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call a function on rank 0 alone, once all ranks have come here; every rank gets its answer, or its error."""
    if not together():
        return function(*args, **kwargs)
    if Rank.make_whole:
        args, kwargs = Rank.make_whole((args, kwargs))
    dist.barrier(Rank.host)  # a rank may still ask for the folder that rank 0 is about to make
    answer: Any = None
    errors: List[Exception] = []
    if dist.get_rank() == 0:
        try:
            with ranks_apart():
                answer = function(*args, **kwargs)
        except Exception as error:
            errors.append(error)
    answer, errors, streams = tell_all((answer, errors, host_streams()))
    if dist.get_rank():  # what has drawn on rank 0 has drawn for all; a thread may go on drawing there
        set_host_streams(streams)
    if errors:
        raise errors.pop()  # it holds this frame, which must not hold it
    return answer


def run_on_rank0(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> None:
    """Call a function on rank 0 alone, for what it does; its end, or its error, is that of all."""

    def run(*args: Any, **kwargs: Any) -> None:
        function(*args, **kwargs)

    if any(isinstance(each, (io.BytesIO, io.StringIO)) for each in (*args, *kwargs.values())):
        run(*args, **kwargs)  # into memory: each rank has its own
    elif together() or own_rank() == 0:
        ask_rank0(run, *args, **kwargs)


def rank0_first(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call a function on every rank, on rank 0 before the others: they find what it has downloaded."""
    made: List[Any] = []
    before = host_streams()
    ask_rank0(lambda: made.append(function(*args, **kwargs)))
    if made:
        return made[0]
    after = host_streams()
    set_host_streams(before)
    with ranks_apart():
        result = function(*args, **kwargs)
    set_host_streams(after)
    return result


def share_streams(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call what seeds a stream from the operating system: all ranks go on with rank 0's."""
    result = function(*args, **kwargs)
    if not together():
        return result
    set_host_streams(tell_all(host_streams()))
    return tell_all(result)


class TemporaryFolderOnRank0(tempfile.TemporaryDirectory):  # type: ignore[type-arg]
    """One folder for all ranks, which rank 0 makes and removes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.name = ask_rank0(tempfile.mkdtemp, *args, **kwargs)

    def cleanup(self) -> None:
        run_on_rank0(shutil.rmtree, self.name, ignore_errors=True)

    def __repr__(self) -> str:
        return f"<TemporaryDirectory {self.name!r}>"
