"""`dp2ddp lsp`: the check, for editors."""

from __future__ import annotations

from importlib.util import find_spec

import click

from dp2ddp.errors import MissingError


@click.command()
def command() -> None:
    """Show an editor what `dp2ddp check` finds, when a file is opened and while it changes.

    The editor starts it, and speaks the Language Server Protocol with it on stdin and stdout (docs/check.md).
    """
    if find_spec("pygls") is None:
        raise MissingError("lsp speaks with editors, which needs pygls: pip install pygls")
    from dp2ddp.language_server import language_server

    language_server().start_io()
