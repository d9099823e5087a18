"""What a notebook has and a script does not: definitions that stand at the top of a script that needs them."""

from __future__ import annotations

from collections.abc import Collection, Iterator

_GET_IPYTHON = '''\
def get_ipython():
    """As IPython has it where no notebook runs."""
    return None'''

_NOTEBOOK_ONLY = '''\
class Silent(type):
    def __call__(cls, *things, **options):
        return cls

    def __add__(cls, other):
        return cls

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return cls


class NotebookOnly(metaclass=Silent):
    """Stands for what only a notebook can show: to call it, or a part of it, does nothing."""'''

_DISPLAY = '''\
def display(*things, **options):
    """What a notebook shows, a script prints."""
    for thing in things:
        if thing is not NotebookOnly:
            print(thing)'''

TEXTS = {"get_ipython": _GET_IPYTHON, "NotebookOnly": _NOTEBOOK_ONLY, "display": _DISPLAY}
_USES = {"display": ("NotebookOnly",)}


def texts_of(names: Collection[str]) -> Iterator[str]:
    """The definitions, with those that they use, and empty lines between them."""
    needed = {*names, *(used for name in names for used in _USES.get(name, ()))}
    for place, name in enumerate(stand_in for stand_in in TEXTS if stand_in in needed):
        yield from ("", "") if place else ()
        yield from TEXTS[name].split("\n")
