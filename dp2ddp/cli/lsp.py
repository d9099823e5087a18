"""`dp2ddp lsp`: the check, for editors."""

from __future__ import annotations

import sys

import click


@click.command()
def command() -> None:
    """Show an editor what `dp2ddp check` finds, when a file is opened and while it changes.

    The editor starts it, and speaks the Language Server Protocol with it on stdin and stdout (docs/check.md).
    """
    from dp2ddp.language_server import LanguageServer

    sys.exit(LanguageServer(sys.stdin.buffer, sys.stdout.buffer).serve())
