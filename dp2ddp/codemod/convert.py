"""The whole codemod on one page: Project → Facts → Plan → Conversion. Read this first."""

from __future__ import annotations

import difflib
import os
import re
import shlex
from dataclasses import dataclass

from dp2ddp.codemod.apply import Editor
from dp2ddp.codemod.checks import check_result
from dp2ddp.codemod.facts import Facts, gather_facts
from dp2ddp.codemod.header import add_header
from dp2ddp.codemod.launch import launch_line, world_of
from dp2ddp.codemod.plan import WRAP_RULE, Plan, Planned, make_plan
from dp2ddp.codemod.rule import pick_rules
from dp2ddp.codemod.strategy import Strategy, choose
from dp2ddp.source.files import SourceFile
from dp2ddp.source.parsing import parse
from dp2ddp.source.projects import Project

# A text search rejects what cannot matter, before anything is parsed (TOOLS.md section 4).
MENTION = re.compile(
    r"(?<!Distributed)(?<!FullySharded)DataParallel|data_parallel|parallel_apply|\bfrom\s+torch\.nn\s+import\s+\*"
)


@dataclass(frozen=True)
class Options:
    """What the user may ask for."""

    style: str = "exact"
    data: str | None = None
    join: str | None = None
    gradients: str | None = None
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    imports: bool = False  # import the helpers from dp2ddp instead of copying them


@dataclass(frozen=True)
class Conversion:
    """A script before and after, and everything that led from one to the other."""

    before: SourceFile
    after: str
    plan: Plan | None = None  # None: no DataParallel in it
    world: int | None = None  # len(device_ids), where they can be read off
    launch: str = ""

    @property
    def changed(self) -> bool:
        return self.after != self.before.text

    @property
    def edits(self) -> tuple[Planned, ...]:
        return self.plan.edits if self.plan and self.changed else ()

    @property
    def hazards(self) -> tuple[Planned, ...]:
        return self.plan.hazards if self.plan else ()

    @property
    def notes(self) -> tuple[Planned, ...]:
        return self.plan.notes if self.plan else ()

    @property
    def strategy(self) -> Strategy | None:
        return self.plan.strategy if self.plan else None

    def launch_of(self, written: str | None) -> str:
        """The launch line for the file that the result was written to."""
        return shlex.join([*shlex.split(self.launch)[:-1], written]) if written else self.launch

    def diff(self) -> str:
        """A unified diff that `patch` applies to the file, byte for byte; the line endings are in it."""
        mark = "\ufeff" if self.before.bom else ""
        before, after = _lines(mark + self.before.text), _lines(mark + self.after)
        name = self.before.name + ("\t" if " " in self.before.name else "")  # where `patch` ends a name
        lines = difflib.unified_diff(before, after, name, f"{self.before.name} (converted)")
        return "".join(
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
        )

    def diff_bytes(self) -> bytes:
        """The same in the file's own encoding; its name as the system spells it."""
        head, at, rest = self.diff().partition("\n@@")
        return os.fsencode(head) + (at + rest).encode(self.before.encoding)


def _lines(text: str) -> list[str]:
    """As `patch` counts them: form feeds, and whatever else str.splitlines ends a line with, are part of a line."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def convert(project: Project, options: Options | None = None) -> Conversion:
    """Convert the entry script of a project; nothing is imported, run or written."""
    options = options or Options()
    rules = pick_rules(options.select, options.ignore)
    entry = project.entry
    if not any(MENTION.search(one.text) for one in (entry, *(module.source for module in project.modules))):
        parse(entry)  # a file that is no Python is an error all the same
        return Conversion(entry, entry.text)
    facts = gather_facts(project)
    strategy = choose(facts, options.data, options.join, options.gradients)
    if not facts.uses_data_parallel:
        plan = make_plan(facts, strategy, [rule for rule in rules if rule.code == WRAP_RULE])
        return Conversion(
            entry, entry.text, plan if plan.notes else None
        )  # a note: wrapped for one device only
    plan = make_plan(facts, strategy, rules)
    if (
        facts.entry.first_act is None or not plan.wraps_converted
    ):  # only hazards: half a conversion helps nobody
        return Conversion(entry, entry.text, plan)
    after = edit_script(facts, plan, options)
    check_result(facts, plan, after)
    return Conversion(entry, after, plan, world_of(facts), launch_line(facts))


def edit_script(facts: Facts, plan: Plan, options: Options) -> str:
    """The new text of the script."""
    editor = Editor(facts.script.positions, facts.script.scopes, facts.script.source.newline)
    return editor.apply(plan.text_edits(), add_header(facts, plan, options.imports))
