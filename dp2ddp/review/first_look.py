"""`dp2ddp check FOLDER ...` where no file matters: answered before the command line is imported.

Click takes longer to import than 2,500 files take to search, and `typing` a third of that: so neither this module nor
what it imports has any of them.
"""

from __future__ import annotations

import os

from dp2ddp.errors import SourceError
from dp2ddp.review.files import may_matter, python_files
from dp2ddp.review.pyproject_files import files_upwards, names_us

TYPE_CHECKING = False  # as in dp2ddp/__init__.py
if TYPE_CHECKING:
    from collections.abc import Sequence

MOST = 20_000  # files; a search of more shows how far it is


def finds_nothing(arguments: Sequence[str]) -> bool:
    """Whether folders are to be checked, with no option or setting, and there is nothing to say of any file; says so.

    Where it is False nothing is said, and nothing decided: the command itself looks, and knows more.
    """
    folders = list(arguments) or ["."]
    if not all(os.path.isdir(name) and not name.startswith("-") for name in folders):
        return False
    if any(map(_has_settings, {os.getcwd(), *folders})):
        return False
    try:
        names = dict.fromkeys(python_files(folders))  # neighbours stay together, which is quicker to read
    except SourceError:
        return False
    if len(names) > MOST or any(map(may_matter, names)):
        return False
    print(f"{len(names):,} file{'' if len(names) == 1 else 's'}: nothing found", flush=True)
    return True


def _has_settings(folder: str) -> bool:
    """Whether a pyproject.toml above a folder may have settings of ours, which may be wrong as well."""
    return any(map(names_us, files_upwards(folder)))
