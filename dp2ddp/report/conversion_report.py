"""What the reports of `convert` tell in every form: how it went, what to do next, which files, which rules."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dp2ddp.codemod.conversion import Conversion
from dp2ddp.codemod.plans.acceptance import option_text
from dp2ddp.codemod.plans.planned import Planned
from dp2ddp.codemod.rule import all_rules
from dp2ddp.report.conversion_text import verdict
from dp2ddp.report.surroundings import conversion_surroundings


@dataclass(frozen=True)
class ConversionReport:
    """A conversion, and what somebody needs to do it again."""

    conversion: Conversion
    written: str | None  # the script to start; None: nothing was written
    surroundings: tuple[tuple[str, str], ...] = ()  # (label, words)
    requested: bool = False  # with choices or rules that verify would not take by itself

    @property
    def word(self) -> str:
        """How it went."""
        if self.conversion.hazards:
            return "OPEN"
        return "CONVERTED" if self.conversion.changed else "UNCHANGED"

    @property
    def verdict(self) -> str:
        """The same in a line."""
        return verdict(self.conversion, self.written)


def conversion_report(
    conversion: Conversion, written: str | None = None, requested: bool = False
) -> ConversionReport:
    """With the command, versions, and digests of all files before and after."""
    digests = (
        (name, data)
        for file in conversion.changed_files
        for name, data in (
            (file.before.name, file.before.data),
            (f"{file.before.name} (converted)", file.data),
        )
    )
    rows = conversion_surroundings(sys.argv, list(digests))
    return ConversionReport(conversion, written, rows, requested)


@dataclass(frozen=True)
class NextStep:
    """Something to do now: a command, or "", and what for."""

    command: str
    words: str


def next_steps(report: ConversionReport) -> Iterator[NextStep]:
    """In the order in which they are done."""
    conversion, written = report.conversion, report.written
    if conversion.hazards:
        yield NextStep(
            "",
            "Look at each hazard: change the script, or answer it where it is harmless; then convert again.",
        )
        return
    if not conversion.changed:
        return
    if not written:
        yield NextStep("", "Nothing was written yet: convert without --check, --diff and -o -.")
    verifying = _verifying(report)
    if verifying:
        yield verifying
    if written:
        in_notebook = " The last cell does it, when all cells are run." if written.endswith(".ipynb") else ""
        yield NextStep(conversion.launch_of(written), f"trains on the GPUs, one process each.{in_notebook}")


def _verifying(report: ConversionReport) -> NextStep | None:
    """The command that compares both; None where there is nothing to compare, or no original any more."""
    conversion, written = report.conversion, report.written
    if written == conversion.before.name or conversion.before.path is None:
        return None
    devices = conversion.world if conversion.world and conversion.world > 1 else 2
    command = f"dp2ddp verify {_original(conversion)}"
    kept = conversion.helpers.kept if conversion.helpers else ()  # helpers that their owner has changed
    as_written = report.requested or conversion.style != "exact" or kept
    if written and written.endswith(".py") and as_written:
        command += f" --converted {shlex.quote(written)}"
    else:
        command += "".join(f" --accept {shlex.quote(option_text(each))}" for each in _by_option(conversion))
    words = f"trains both versions on {devices} devices and compares every optimizer step. No GPU is needed."
    return NextStep(f"{command} -n {devices}", words)


def _original(conversion: Conversion) -> str:
    """The script as a command names it."""
    module = conversion.entry_module
    return f"-m {shlex.quote(module)}" if module else shlex.quote(conversion.before.name)


def _by_option(conversion: Conversion) -> Iterator[Planned]:
    """Hazards whose answers are not in the script: the next command needs them, too."""
    return (each for each in conversion.accepted if each.acceptance and each.acceptance.by != "comment")


def how_to_answer(hazard: Planned) -> tuple[str, str]:
    """The comment, and the option, by which somebody says that a hazard is harmless."""
    return f"# dp2ddp: accept[{hazard.code}] why", f"--accept {shlex.quote(option_text(hazard))}"


def place_of(conversion: Conversion, planned: Planned) -> str:
    """The line as a person looks for it."""
    return planned.place.in_file(planned.file or conversion.before.name, planned.column)


def source_line(conversion: Conversion, planned: Planned) -> str:
    """The line of the original that a finding is about; "" where it is about none."""
    for file in conversion.files:
        if file.plan and any(planned is each for each in (*file.plan.hazards, *file.plan.accepted)):
            lines = file.before.text.splitlines()
            return lines[planned.line - 1].strip() if 0 < planned.line <= len(lines) else ""
    return ""


def written_files(report: ConversionReport) -> Iterator[tuple[str, str]]:
    """(file, what it is) of what belongs to the result."""
    conversion, written = report.conversion, report.written
    if not conversion.changed:
        return
    yield written or Path(conversion.before.name).name, _what_it_is(written)
    for module in conversion.modules:
        if module.changed:
            yield module.before.name, "a module of yours, with the changes below"
    helpers = conversion.helpers
    if helpers and not (written or "").endswith(".ipynb"):
        lines = f"{len(helpers.after.splitlines()):,} lines"
        kept = f"; as you changed them: {', '.join(helpers.kept)}" if helpers.kept else ""
        what = "what the script imports: yours now, needs torch alone"
        yield Path(helpers.before.name).name, f"{what}; {lines}{kept}"


def _what_it_is(written: str | None) -> str:
    if written is None:
        return "the script, not written"
    return "the notebook that writes the script and starts it" if written.endswith(".ipynb") else "the script"


def rules_of(conversion: Conversion) -> list[tuple[str, str]]:
    """(code, summary) of each rule that had something to say."""
    all_planned = (*conversion.edits, *conversion.notes, *conversion.hazards, *conversion.accepted)
    codes = {planned.code for planned in all_planned}
    return [(rule.code, rule.summary()) for rule in all_rules() if rule.code in codes]
