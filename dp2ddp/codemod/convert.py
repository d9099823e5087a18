"""The whole codemod on one page: Project → Facts → Plan → Conversion. Read this first."""

from __future__ import annotations

import difflib
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from dp2ddp.codemod.apply import Editor
from dp2ddp.codemod.checks import check_result
from dp2ddp.codemod.facts import Facts, gather_facts
from dp2ddp.codemod.facts.script import HELPERS_START, SUPPORT
from dp2ddp.codemod.header import add_header, support_module
from dp2ddp.codemod.launch import entry_name, launch_line, world_of
from dp2ddp.codemod.lift import PACKAGE, Library
from dp2ddp.codemod.plan import WRAP_RULE, Plan, Planned, make_plan
from dp2ddp.codemod.rule import pick_rules
from dp2ddp.codemod.strategy import Strategy, choose
from dp2ddp.errors import ConversionError
from dp2ddp.source.entries import OtherEntry
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
class FileConversion:
    """One file before and after."""

    before: SourceFile
    after: str
    plan: Plan | None = None  # None: nothing of DataParallel in the project

    @property
    def changed(self) -> bool:
        return self.after != self.before.text

    @property
    def data(self) -> bytes:
        """The result in the file's own encoding."""
        return self.before.encoded(self.after)

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


@dataclass(frozen=True)
class Conversion:
    """A script (with its local modules) before and after, and everything that led from one to the other."""

    entry: FileConversion
    modules: tuple[FileConversion, ...] = ()  # those that change, or that have something to say
    support: FileConversion | None = None  # the new module with the helpers, where modules change
    strategy: Strategy | None = None
    world: int | None = None  # len(device_ids), where they can be read off
    launch: str = ""
    entry_module: str = ""  # "package.train", of a script that is started with -m
    used_by: tuple[OtherEntry, ...] = ()  # other scripts that import what is changed here
    missing: tuple[str, ...] = ()  # imports that were not found, so that nobody has looked at what they do
    unread: tuple[str, ...] = ()  # local modules that are no Python: nobody has looked at them either

    @property
    def files(self) -> tuple[FileConversion, ...]:
        return self.entry, *self.modules

    @property
    def changed_files(self) -> tuple[FileConversion, ...]:
        """What has to be written, the new module with the helpers first."""
        changed = (one for one in self.files if one.changed)
        return *((self.support,) if self.support and self.support.changed else ()), *changed

    @property
    def is_project(self) -> bool:
        """Whether more than the script itself changes, or must be there."""
        return self.support is not None or any(one.changed for one in self.modules)

    @property
    def before(self) -> SourceFile:
        return self.entry.before

    @property
    def after(self) -> str:
        return self.entry.after

    @property
    def changed(self) -> bool:
        return any(one.changed for one in self.files)

    @property
    def edits(self) -> tuple[Planned, ...]:
        return tuple(edit for one in self.files if one.plan and one.changed for edit in one.plan.edits)

    @property
    def hazards(self) -> tuple[Planned, ...]:
        return tuple(hazard for one in self.files if one.plan for hazard in one.plan.hazards)

    @property
    def notes(self) -> tuple[Planned, ...]:
        return tuple(note for one in self.files if one.plan for note in one.plan.notes)

    @property
    def settings(self) -> dict[str, str]:
        """The environment variables that the launch line sets."""
        pairs = (word.partition("=") for word in shlex.split(self.launch.partition("torchrun ")[0]))
        return {name: value for name, _, value in pairs}

    def launch_of(self, written: str | None) -> str:
        """The launch line for the file that the result was written to; a notebook starts the script that it writes."""
        if not written:
            return self.launch
        if written.endswith(".ipynb"):
            return self.launch_with(f"{Path(written).stem}.py")
        if self.before.cells:
            return self._launch_of_notebook(written)
        if not self.entry_module:
            return self.launch_with(written)
        root = Path(written).parents[self.entry_module.count(".")]
        name = ".".join(Path(written).relative_to(root).with_suffix("").parts)
        place = "" if root == Path() else f"cd {shlex.quote(str(root))} && "
        return place + self.launch_with(name)

    def launch_with(self, name: str) -> str:
        """The launch line with another name for the script."""
        old = shlex.split(self.launch)[-1]
        return self.launch.removesuffix(shlex.quote(old)) + shlex.quote(name)

    def _launch_of_notebook(self, written: str) -> str:
        """In the folder of the notebook (of its copy), where Jupyter would run it."""
        assert self.before.path
        here = self.before.path.parent if not self.is_project else Path(written).parent
        place = "" if here == Path() else f"cd {shlex.quote(str(here))} && "
        return place + self.launch_with(os.path.relpath(written, here))

    def diff(self) -> str:
        """One file after the other."""
        return "".join(one.diff() for one in self.changed_files)

    def diff_bytes(self) -> bytes:
        return b"".join(one.diff_bytes() for one in self.changed_files)


def _lines(text: str) -> list[str]:
    """As `patch` counts them: form feeds, and whatever else str.splitlines ends a line with, are part of a line."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def convert(project: Project, options: Options | None = None) -> Conversion:
    """Convert the entry script of a project and its local modules; nothing is imported, run or written."""
    try:
        found = _convert(project, options or Options())
    except RecursionError as error:
        name = project.entry.name
        raise ConversionError(
            f"{name}: nested too deeply to be converted, it or a module of its own"
        ) from error
    return replace(found, missing=project.missing, unread=project.unread, entry_module=project.entry_module)


def _convert(project: Project, options: Options) -> Conversion:
    rules = pick_rules(options.select, options.ignore)
    entry = project.entry
    _refuse_half_converted(project)
    if not any(MENTION.search(one.text) for one in (entry, *(module.source for module in project.modules))):
        parse(entry)  # a file that is no Python is an error all the same
        return Conversion(FileConversion(entry, entry.text))
    _refuse_unread(project)
    facts = gather_facts(project)
    strategy = choose(facts, options.data, options.join, options.gradients)
    if not facts.uses_data_parallel:  # a note at most: wrapped for one device only
        plan = make_plan(facts, strategy, [rule for rule in rules if rule.code == WRAP_RULE])
        return Conversion(FileConversion(entry, entry.text, plan), strategy=strategy)
    plans = {one: make_plan(one, strategy, rules) for one in facts.files}
    if facts.entry.first_act is None or not any(plan.wraps_converted for plan in plans.values()):
        return _unchanged(plans, strategy)  # only hazards: half a conversion helps nobody
    return _convert_files(project, facts, plans, strategy, options)


# The templates whose helpers fit together in one way only, which was chosen for another script.
CHOSEN_TOGETHER = {"ddp", "in_turn", "parts", "rows", "batches", "spread", "feed"}
FROM_HELPERS = re.compile(rf"^from {SUPPORT} import (.*)", re.MULTILINE)
JOINS = "join_process_group"


def _refuse_half_converted(project: Project) -> None:
    """A ConversionError for a script whose models or loaders were converted with another one, and it was not."""
    if _earlier_helpers(project) is None or JOINS in project.entry.text:
        return
    library = Library()
    for module in project.modules:
        lines = FROM_HELPERS.findall(module.source.text)
        names = {name.split(" as ")[0].strip() for line in lines for name in line.split(",")}
        if any(library.module_of(name) in CHOSEN_TOGETHER for name in names & {*library.names}):
            raise ConversionError(
                f"{project.entry.name}: {module.source.name} was converted with another script, in a way that was "
                "chosen for that one; convert this one in the project as it was before (-o FOLDER)"
            )


def _refuse_unread(project: Project) -> None:
    """A SourceError for a local module that has DataParallel in it and is no Python: half a conversion helps nobody."""
    for module in project.modules:
        if MENTION.search(module.source.text):
            parse(module.source)


def _unchanged(plans: Mapping[Facts, Plan], strategy: Strategy) -> Conversion:
    files = [FileConversion(one.script.source, one.script.source.text, plan) for one, plan in plans.items()]
    return Conversion(files[0], tuple(files[1:]), strategy=strategy)


def _convert_files(
    project: Project, facts: Facts, plans: Mapping[Facts, Plan], strategy: Strategy, options: Options
) -> Conversion:
    changing = [one for one in facts.others if plans[one].edits]
    shared = bool(changing or project.entry_names) or _earlier_helpers(project) is not None
    helpers_from = PACKAGE if options.imports else SUPPORT if shared else None
    files = [
        FileConversion(one.script.source, edit_file(one, plan, helpers_from), plan)
        for one, plan in plans.items()
    ]
    for one, plan, file in zip(plans, plans.values(), files, strict=True):
        check_result(one, plan, file.after)
    return Conversion(
        files[0],
        tuple(files[1:]),
        _support(project, list(plans.values())) if helpers_from == SUPPORT else None,
        strategy,
        world_of(facts),
        launch_line(facts, entry_name(facts) if shared else None),
    )


def edit_file(facts: Facts, plan: Plan, helpers_from: str | None) -> str:
    """The new text of a file."""
    editor = Editor(facts.script.positions, facts.script.scopes, facts.script.source.newline)
    return editor.apply(plan.text_edits(), add_header(facts, plan, helpers_from))


def _support(project: Project, plans: list[Plan]) -> FileConversion:
    """The module with the helpers: in the folder that is first on sys.path, where every file finds it.

    What an earlier conversion of another script has put there stays: that one needs it.
    """
    before = _earlier_helpers(project)
    if project.helpers and before is None:
        raise ConversionError(
            f"{project.helpers.name}: the helpers of the conversion need this name; rename it, or use --import"
        )
    library = Library()
    helpers = {lift.helper for plan in plans for lift in plan.lifts}
    helpers |= {
        one for one in library.names if before and re.search(rf"^(?:def|class) {one}\b", before.text, re.M)
    }
    place = SourceFile(project.root / f"{SUPPORT}.py" if project.root else None, "")
    return FileConversion(before or place, support_module(helpers, library))


def _earlier_helpers(project: Project) -> SourceFile | None:
    found = project.helpers
    return found if found and found.text.startswith(HELPERS_START) else None
