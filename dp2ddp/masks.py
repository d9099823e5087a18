"""Arguments as they may be shown: reports are sent around, and a terminal's lines end in the logs of a CI.

What a name calls a key, a token, a secret or a password is `***`; too much is rather masked than too little.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

MASK = "***"
_SECRET = re.compile(r"secret|passw|passphrase|credential|(?:key|token|auth|pwd)$", re.IGNORECASE)
# Of language models, `--max-tokens 512`: their numbers are no secrets, what else stands there may be one.
_PERHAPS = re.compile(r"(?:^|[-_.])(?:keys?|tokens?)(?:[-_.]|$)", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?[\d.,]+(?:e[-+]?\d+)?", re.IGNORECASE)
_OPTION = re.compile(r"-[^\s=]+")
_ASSIGNMENT = re.compile(r"([-+~]*[\w./-]+)=(.*)", re.DOTALL)  # --api-key=X, API_KEY=X, wandb.api_key=X
_INSIDE = re.compile(r"""([\w.-]+)(["']?\s*[:=]\s*["']?)([^"',;&}\s]+)""")  # {"token": "X"}, ?token=X&
_PASSWORD_OF_URL = re.compile(r"(://[^/\s:@]*:)[^/\s]+@")


def masked(words: Sequence[str]) -> list[str]:
    """The words of a command without the values of secrets."""
    return list(_masked(words))


def _masked(words: Sequence[str]) -> Iterator[str]:
    name = ""  # of the option before
    for word in words:
        is_option = _OPTION.fullmatch(word) is not None and not _NUMBER.fullmatch(word)
        if name and not word.startswith("--") and _is_secret(name, word):
            yield MASK
            name = ""
            continue
        name = word.lstrip("-") if is_option else ""
        yield word if is_option else _without_secrets(word)


def _is_secret(name: str, value: str) -> bool:
    if _SECRET.search(name):
        return True
    return _PERHAPS.search(name) is not None and not _NUMBER.fullmatch(value)


def _without_secrets(word: str) -> str:
    assignment = _ASSIGNMENT.fullmatch(word)
    if assignment and _is_secret(assignment[1], assignment[2]):
        return f"{assignment[1]}={MASK}"
    inner = _words_of(word)
    if len(inner) > 1:  # a command in a word: --converted-arguments '--api-key X'
        hidden = masked(inner)
        word = word if hidden == inner else shlex.join(hidden)
    word = _INSIDE.sub(
        lambda found: f"{found[1]}{found[2]}{MASK}" if _is_secret(found[1], found[3]) else found[0], word
    )
    return _PASSWORD_OF_URL.sub(rf"\1{MASK}@", word)


def _words_of(word: str) -> list[str]:
    try:
        return shlex.split(word)
    except ValueError:  # an apostrophe in a sentence
        return word.split()
