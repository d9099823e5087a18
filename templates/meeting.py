"""Behind a forward: what ranks must know of each other before they go on."""

from typing import List, NamedTuple, Optional, Tuple

from .broadcast import exchange_numbers, tell_all

AT_ONCE = 8  # sizes of outputs that go with the first message


class SideEffects(NamedTuple):
    """What a replica's forward did beside computing."""

    drew_on_host: bool
    drew_on_device: bool
    changed_buffers: bool
    changed_parameters: bool


def meet(
    error: Optional[Exception], own: SideEffects, sizes: List[int]
) -> Tuple[SideEffects, List[List[int]]]:
    """The side effects that count (replica 0's draws, any replica's changes), and each output's rows on each rank.

    What a replica raises is raised on all ranks.
    """
    first = [*sizes, *[0] * AT_ONCE][:AT_ONCE]
    all_numbers = exchange_numbers([error is not None, *own, len(sizes), *first])
    failed = [numbers[0] for numbers in all_numbers]
    if any(failed):
        error_of_all = tell_all(error, failed.index(1))  # by the first of them, to all
        raise error or error_of_all
    if len({numbers[5] for numbers in all_numbers}) > 1:
        raise RuntimeError("replicas give different numbers of outputs: DataParallel cannot gather them")
    columns = [[*map(bool, column)] for column in zip(*all_numbers)][1:5]
    effects = SideEffects(columns[0][0], columns[1][0], any(columns[2]), any(columns[3]))
    counts = [numbers[6:] for numbers in all_numbers]
    if len(sizes) > AT_ONCE:
        counts = exchange_numbers(sizes)
    return effects, [[*column] for column in zip(*counts)][: len(sizes)]
