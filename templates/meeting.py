"""What one rank's replica raises is raised on all."""

from typing import Any, Optional

from .broadcast import exchange_numbers, tell_all
from .overlapping import WholeBatchParallel


class WholeBatchSharingErrors(WholeBatchParallel):
    """WholeBatchParallel for scripts that catch errors: what a replica raises on one rank is raised on all."""

    stands_for_data_parallel = True

    def run_replica(self, replica: Any, has_rows: bool, inputs: Any, kwargs: Any) -> Any:
        outputs, error = None, None
        try:
            outputs = super().run_replica(replica, has_rows, inputs, kwargs)
        except Exception as raised:
            error = raised if has_rows else None
        raise_on_all(error)
        return outputs


def raise_on_all(error: Optional[Exception]) -> None:
    """What a replica has raised on this rank, or on another."""
    failed = [number for (number,) in exchange_numbers([error is not None])]
    if any(failed):
        error_of_all = tell_all(error, failed.index(1))
        raise error or error_of_all
