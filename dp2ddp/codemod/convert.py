"""The whole codemod on one page: Project → Facts → Plan → Conversion. Read this first."""

from __future__ import annotations

import difflib
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from dp2ddp.codemod.acceptance import AcceptOption, refuse_unmatched
from dp2ddp.codemod.apply import Editor
from dp2ddp.codemod.checks import check_result
from dp2ddp.codemod.facts import Facts, gather_facts
from dp2ddp.codemod.facts.looked_up import may_look_up
from dp2ddp.codemod.header import add_header
from dp2ddp.codemod.helpers import HelperModule, HelperPlace, helper_module
from dp2ddp.codemod.launch import entry_name, launch_line, world_of
from dp2ddp.codemod.lift import Library
from dp2ddp.codemod.plan import WRAP_RULE, Plan, Planned, make_plan
from dp2ddp.codemod.rule import pick_rules
from dp2ddp.codemod.strategy import Strategy, choose
from dp2ddp.errors import ConversionError
from dp2ddp.source.entries import OtherEntry
from dp2ddp.source.files import Rewrite, SourceFile
from dp2ddp.source.helper_module import NAME
from dp2ddp.source.parsing import parse
from dp2ddp.source.projects import Project
from dp2ddp.source.settings_files import find_mentions

# A text search rejects what cannot matter, before anything is parsed.
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
    accept: tuple[AcceptOption, ...] = ()  # hazards that the user answers
    helpers: HelperPlace = HelperPlace.BESIDE
    renew_helpers: bool = False  # write the module with the helpers anew, whoever changed it


@dataclass(frozen=True)
class FileConversion(Rewrite):
    """One file of the user's own before and after."""

    plan: Plan | None = None  # None: nothing of DataParallel in the project

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
    helpers: HelperModule | None = None  # the module with the helpers, unless they live elsewhere
    keeps_name: bool = False  # modules import the script itself: it must be called what they call it
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
        """Those of the user's own, the entry script first."""
        return tuple(one for one in self.files if one.changed)

    @property
    def helper_file(self) -> dict[Path, bytes]:
        """The module with the helpers, where it has to be written."""
        module = self.helpers
        path = module.before.path if module and module.changed and self.changed else None
        return {path: module.data} if module and path else {}

    @property
    def files_beside(self) -> dict[Path, bytes]:
        """What is written beside the script: its helpers, and local modules that change."""
        changed = {one.before.path: one.data for one in self.modules if one.changed}
        return self.helper_file | {path: data for path, data in changed.items() if path}

    @property
    def written_files(self) -> dict[Path, bytes]:
        """What a conversion in place writes."""
        entry = {self.before.path: self.entry.data} if self.before.path and self.entry.changed else {}
        return self.files_beside | entry

    @property
    def is_project(self) -> bool:
        """Whether more than the script itself changes, or its name must stay."""
        return self.keeps_name or any(one.changed for one in self.modules)

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
        """Open ones."""
        return tuple(hazard for one in self.files if one.plan for hazard in one.plan.hazards)

    @property
    def accepted(self) -> tuple[Planned, ...]:
        """Hazards that a person has answered."""
        return tuple(hazard for one in self.files if one.plan for hazard in one.plan.accepted)

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
    refuse_unmatched((options or Options()).accept, found.accepted, found.hazards, project.entry.name)
    return replace(found, missing=project.missing, unread=project.unread, entry_module=project.entry_module)


def _convert(project: Project, options: Options) -> Conversion:
    rules = pick_rules(options.select, options.ignore)
    entry = project.entry
    _refuse_half_converted(project)
    if not _may_matter(project):
        parse(entry)  # a file that is no Python is an error all the same
        return Conversion(FileConversion(entry, entry.text))
    _refuse_unread(project)
    facts = gather_facts(project)
    strategy = choose(facts, options.data, options.join, options.gradients)
    if not facts.uses_data_parallel:  # a note at most: wrapped for one device only
        plan = make_plan(facts, strategy, [rule for rule in rules if rule.code == WRAP_RULE], options.accept)
        return Conversion(FileConversion(entry, entry.text, plan), strategy=strategy)
    plans = {one: make_plan(one, strategy, rules, options.accept) for one in facts.files}
    if facts.entry.first_act is None or not any(plan.wraps_converted for plan in plans.values()):
        return _unchanged(plans, strategy)  # only hazards: half a conversion helps nobody
    return _convert_files(project, facts, plans, strategy, options)


def _may_matter(project: Project) -> bool:
    """Whether DataParallel is named anywhere, or may be looked up by a name that a file of settings gives."""
    texts = [project.entry.text, *(module.source.text for module in project.modules)]
    if any(map(MENTION.search, texts)):
        return True
    path = project.entry.path
    return path is not None and any(map(may_look_up, texts)) and any(find_mentions(path.parent))


# The templates whose helpers fit together in one way only, which was chosen for another script.
CHOSEN_TOGETHER = {"ddp", "in_turn", "parts", "rows", "batches", "shared", "feed"}
FROM_HELPERS = re.compile(rf"^from {NAME} import (.*)", re.MULTILINE)
JOINS = "join_process_group"


def _refuse_half_converted(project: Project) -> None:
    """A ConversionError for a script whose models or loaders were converted with another one, and it was not."""
    if JOINS in project.entry.text:
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
    keeps_name = bool(project.entry_names)
    is_project = keeps_name or any(plans[one].edits for one in facts.others)
    place = options.helpers
    if place is HelperPlace.IN_SCRIPT and is_project:
        place = HelperPlace.BESIDE  # several files need them
    files = [
        FileConversion(one.script.source, edit_file(one, plan, place), plan) for one, plan in plans.items()
    ]
    for one, plan, file in zip(plans, plans.values(), files, strict=True):
        check_result(one, plan, file.after)
    return Conversion(
        files[0],
        tuple(files[1:]),
        _helpers(project, list(plans.values()), options) if place is HelperPlace.BESIDE else None,
        keeps_name,
        strategy,
        world_of(facts),
        launch_line(facts, entry_name(facts) if is_project else None),
    )


def edit_file(facts: Facts, plan: Plan, place: HelperPlace) -> str:
    """The new text of a file."""
    editor = Editor(facts.script.positions, facts.script.scopes, facts.script.source.newline)
    return editor.apply(plan.text_edits(), add_header(facts, plan, place))


def _helpers(project: Project, plans: list[Plan], options: Options) -> HelperModule:
    """The module with the helpers: in the folder that is first on sys.path, where every file finds it."""
    needed = {lift.helper for plan in plans for lift in plan.lifts}
    there = project.helpers or SourceFile(project.helper_path, "")
    return helper_module(
        there, needed, Library(), is_there=project.helpers is not None, renew=options.renew_helpers
    )
