"""What a converted script takes of dp2ddp's helpers (ddp_helpers.py, pasted, or installed), as the rules ask for it.

tests/review/test_converted.py holds the names against the templates.
"""

from __future__ import annotations

import ast

from dp2ddp.codemod.knowledge.reading_methods import words
from dp2ddp.review.own_file import OwnFile
from dp2ddp.source.helper_module import IMPORTED

# Take a whole batch, the same on every rank: each runs its rows of it, and all get the outputs of all.
WRAPPERS = words(
    "WholeBatchDDP WholeBatchParallel WholeBatchSharingErrors WholeBatch WholeBatchInParts WholeBatchPrinting",
    "WholeBatchWriting WholeBatchInTurns DataParallelOnRanks LibrarysOnRanks DataParallelInTurns LibrarysInTurns",
)
# All ranks must call these together, each of which waits for the others.
MEETINGS = words(
    "run_on_rank0 ask_rank0 make_on_rank0 make_handler_on_rank0 rank0_first save_on_rank0 open_on_rank0",
    "open_by_on_rank0 open_path_on_rank0 write_on_rank0",
)
LOADERS = {"Rank0Loader", "Rank0SamplerLoader"}


def helper_of(file: OwnFile, function: ast.AST) -> str:
    """The helper that an expression names; "" if it is none."""
    name = file.module.name(function) or ""
    if name.startswith(IMPORTED):
        return name.rpartition(".")[2]
    definition = file.definition(function)
    is_pasted = getattr(definition, "lineno", 0) in file.pasted_lines
    return getattr(definition, "name", "").rstrip("_") if is_pasted else ""  # a name that was taken gets a _
