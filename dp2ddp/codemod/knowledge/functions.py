"""What functions of libraries do: questions to the table."""

from dp2ddp.codemod.knowledge.function_rows import ROWS, TRACKING
from dp2ddp.codemod.knowledge.kinds import Does, FunctionRow
from dp2ddp.codemod.knowledge.names import SPELLINGS

__all__ = ["TRACKING", "Does", "FunctionRow", "does", "knows", "what_is"]


def what_is(name: str | None) -> FunctionRow | None:
    """What is known of a function, by its canonical name."""
    return ROWS.get(name) if name else None


def does(name: str | None) -> Does | None:
    row = what_is(name)
    return row.does if row else None


def knows(name: str) -> bool:
    """Whether a name is one that the tables have, for `from library import *`."""
    return name in ROWS or name in SPELLINGS
