"""`dp2ddp doctor`: can training with several processes work on this machine, and what is to be expected of it."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click

from dp2ddp.cli._options import options
from dp2ddp.cli._progress import is_terminal
from dp2ddp.options import option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dp2ddp.doctor.host import Answer

MARKS = {"good": ("ok", "green"), "remark": ("look", "yellow"), "bad": ("no", "red")}
NAME_WIDTH = 16


@dataclass(frozen=True, kw_only=True)
class DoctorOptions:
    as_json: bool = option(False, "The answers as JSON.", "--json")
    timeout: float = option(
        30.0,
        "Seconds for torch, and for two ranks, before the doctor gives up.",
        most=24 * 60 * 60,  # the system's own waits take neither `inf` nor months
    )


@click.command()
@options(DoctorOptions)
def command(options: DoctorOptions) -> None:
    """Ask this machine whether training with several processes can work on it.

    Looks at Python, torch, CUDA, NCCL, gloo, GPUs, memory, limits and settings, and starts two ranks that add
    numbers. Takes some seconds; nothing is left behind.
    Ends with 0 if training can work here, with 1 if something must be mended first.
    """
    from dp2ddp.doctor.examine import examine

    answers: list[Answer] = []
    for answer in examine(options.timeout, waiting):
        waiting("")
        answers.append(answer)
        if not options.as_json:
            click.echo(text_of(answer))
    works = all(answer.state != "bad" for answer in answers)
    click.echo(document(answers, works) if options.as_json else verdict(answers), nl=not options.as_json)
    sys.exit(0 if works else 1)


def waiting(text: str) -> None:
    """What the doctor waits for, in a line on a terminal that the next one takes away."""
    if is_terminal():
        click.echo(f"\r\033[K{text}", err=True, nl=False)


def text_of(answer: Answer) -> str:
    """The answer in a line, and its advice below it."""
    mark, colour = MARKS[answer.state]
    shown = f"{mark:<5}" if os.environ.get("NO_COLOR") else click.style(f"{mark:<5}", fg=colour)
    head = f"{shown} {answer.name:<{NAME_WIDTH}} {answer.text}"
    if not answer.advice:
        return head
    margin = " " * (6 + NAME_WIDTH + 1)
    width = max(60, shutil.get_terminal_size((120, 24)).columns)
    advice = textwrap.fill(
        answer.advice, width, initial_indent=f"{margin}-> ", subsequent_indent=f"{margin}   ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return f"{head}\n{advice}"


def verdict(answers: Sequence[Answer]) -> str:
    from dp2ddp.doctor.host import TWO_RANKS

    broken = [answer.name for answer in answers if answer.state == "bad"]
    remarks = [answer.name for answer in answers if answer.state == "remark"]
    if broken:
        return (
            f"\nTraining with several processes cannot work here before this is mended: {', '.join(broken)}."
        )
    if remarks:
        known = "may work here, and was not tried" if TWO_RANKS in remarks else "works here"
        return f"\nTraining with several processes {known}; have a look at: {', '.join(remarks)}."
    return "\nTraining with several processes works here."


def document(answers: Sequence[Answer], works: bool) -> str:
    """Everything as JSON (docs/launch.md)."""
    entries = [asdict(answer) for answer in answers]
    return json.dumps({"works": works, "answers": entries}, indent=2) + "\n"
