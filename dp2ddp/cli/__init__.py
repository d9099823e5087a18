"""The command line: one file a command; the only package that knows all the others.

Exit codes, everywhere: 0 yes or done, 1 no (hazards open, would change, different), 2 usage (click's own),
3 could not (`Dp2DdpError`: one line on stderr; `--traceback` shows more), 130 interrupted (Ctrl-C), 143 ended by
`kill`, 141 the reader of the output has gone (`| head -1`), as shells say it.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import select
import shlex
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any, NoReturn

import click

from dp2ddp.commands import COMMANDS
from dp2ddp.errors import Dp2DdpError, HazardError, UnmatchedAcceptanceError, did_you_mean
from dp2ddp.masks import masked


def warn(text: object) -> None:
    """A line on stderr."""
    click.echo(f"dp2ddp: {text}", err=True)


class ScriptCommand(click.Command):
    """A command that runs a script: options of the script's own stand behind --."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = error.option_name
            places = list(enumerate(given))
            begins = [place for place, word in places if word.startswith(name)]  # `--lr=0.1`, `-b32`
            joined = [place for place, word in places if word[:1] == "-" and name[1:] in word]  # `-mb`
            own = given[[*begins, *joined, 0][0] :]
            hint = f"No such option: {name}; the script's own stand behind --: -- {shlex.join(masked(own))}"
            raise click.NoSuchOption(name, hint, ctx=error.ctx) from error


class LazyGroup(click.Group):
    """A group that imports a command's module when that command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"dp2ddp.cli.{cmd_name}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            ctx.fail(f"No such command {name!r}{_meant(name)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))  # from the table: --help imports no command

    def main(self, *arguments: Any, **how: Any) -> Any:
        try:
            return super().main(*arguments, **how)
        except BrokenPipeError as error:  # while click told a usage error
            end_without_output(error)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except OSError as error:  # --help and --version are printed in here
            end_without_output(error)

    def invoke(self, ctx: click.Context) -> Any:
        _end_in_order()
        try:
            with _errors_shown(shows_traceback=ctx.params.get("traceback", False)):
                return super().invoke(ctx)
        except OSError as error:
            if ctx.params.get("traceback") and error.errno != errno.EPIPE:
                raise
            end_without_output(error)


@contextlib.contextmanager
def _errors_shown(shows_traceback: bool) -> Iterator[None]:
    """What could not be done, in a line, and as an exit code."""
    try:
        yield
    except KeyboardInterrupt:
        warn("interrupted")
        sys.exit(130)
    except HazardError as error:
        click.echo(error.report, err=True, nl=False)
        warn(error)
        sys.exit(1)
    except UnmatchedAcceptanceError as error:
        warn(error)
        sys.exit(2)
    except Dp2DdpError as error:
        if shows_traceback:
            raise
        warn(error)
        sys.exit(3)


def end_without_output(error: OSError) -> NoReturn:
    """End where something cannot be written: a full disk, a folder that is closed to us, a reader that has gone."""
    if error.errno == errno.EPIPE:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            try:
                stream.flush()
            except (OSError, ValueError):  # what is left in the buffer has nowhere to go
                with contextlib.suppress(OSError, ValueError):
                    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        sys.exit(128 + signal.SIGPIPE)
    warn(f"{error.filename or 'output'}: {error.strerror or error}")
    sys.exit(3)


def refuse_to_write_to_nobody() -> None:
    """A BrokenPipeError if somebody read our output, and has gone (`| head -1`)."""
    pipes = select.poll()
    for number in (1, 2):
        pipes.register(number, 0)
    if any(event & select.POLLERR for _, event in pipes.poll(0)):
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def _meant(name: str) -> str:
    """What somebody may have meant who wrote this for a command: another one, or a script for one."""
    if name.endswith((".py", ".ipynb")):
        return f"; to convert this script: dp2ddp convert {shlex.quote(name)}"
    return did_you_mean(name, COMMANDS)


def _end_in_order() -> None:
    """A `kill`, or a terminal that is closed, ends us as Ctrl-C does: with what we started, and our temporary files."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) == signal.SIG_DFL:  # nohup ignores SIGHUP
                signal.signal(number, _ended)


def _ended(number: int, frame: object) -> None:
    sys.exit(128 + number)  # as shells say it


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--traceback", is_flag=True, help="Show Python's traceback when something could not be done.")
@click.version_option(package_name="dp2ddp", prog_name="dp2ddp")
@click.pass_context
def main(context: click.Context, traceback: bool) -> None:
    """Move PyTorch scripts from nn.DataParallel to DistributedDataParallel, and prove that they train the same."""
    from dp2ddp.cli._defaults import read_defaults

    context.default_map = read_defaults(COMMANDS, context.invoked_subcommand, warn)
