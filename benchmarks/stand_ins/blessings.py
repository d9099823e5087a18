"""A terminal of 24 lines."""

import contextlib


class Terminal:
    height = 24

    def location(self, x=None, y=None):
        return contextlib.nullcontext()
