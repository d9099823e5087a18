"""The whole codemod on one page: Project → Facts → Plan → Conversion. Read this first."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from dp2ddp.codemod.acceptance import AcceptOption, refuse_unmatched
from dp2ddp.codemod.checks import check_result
from dp2ddp.codemod.choices import EXACT, FULL
from dp2ddp.codemod.facts import Facts, gather_facts
from dp2ddp.codemod.header import make_header
from dp2ddp.codemod.helpers import HelperModule, HelperPlace, helper_module
from dp2ddp.codemod.knowledge.libraries import may_be_local
from dp2ddp.codemod.launch import entry_name, launch_line, world_of
from dp2ddp.codemod.lift import all_templates
from dp2ddp.codemod.plan import WRAP_RULE, Plan, Planned, make_plan
from dp2ddp.codemod.rule import STYLES, pick_rules
from dp2ddp.codemod.small.looked_up import may_look_up
from dp2ddp.codemod.strategy import Strategy, choose
from dp2ddp.codemod.tiers import choose_tier, with_tier
from dp2ddp.codemod.unused import with_unused_imports
from dp2ddp.errors import ConversionError
from dp2ddp.source.entries import OtherEntry, other_entries
from dp2ddp.source.files import Rewrite, SourceFile
from dp2ddp.source.helper_module import NAME, PACKAGE
from dp2ddp.source.parsing import garbage_waits, parse
from dp2ddp.source.projects import Project
from dp2ddp.source.settings_files import find_mentions

if TYPE_CHECKING:
    from dp2ddp.codemod.idiomatic.style_differences import StyleDifference

# While the new codemod stands beside this one (issue 27), DP2DDP_CODEMOD=small takes it.
NEW_CODEMOD = "DP2DDP_CODEMOD"

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
    tier: str | None = None  # of helpers
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    accept: tuple[AcceptOption, ...] = ()  # hazards that the user answers
    helpers: HelperPlace = HelperPlace.BESIDE
    renew_helpers: bool = False  # write the module with the helpers anew, whoever changed it


@dataclass(frozen=True)
class FileConversion(Rewrite):
    """One file of the user's own before and after."""

    plan: Plan | None = None  # None: nothing of DataParallel in the project
    how: ClassVar[str] = "converted"


@dataclass(frozen=True)
class Conversion:
    """A script (with its local modules) before and after, and everything that led from one to the other."""

    entry: FileConversion
    modules: tuple[FileConversion, ...] = ()  # those that change, or that have something to say
    helpers: HelperModule | None = None  # the module with the helpers, unless they live elsewhere
    keeps_name: bool = False  # modules import the script itself: it must be called what they call it
    strategy: Strategy | None = None
    style: str = "exact"
    differences: tuple[StyleDifference, ...] = ()  # from how DataParallel trains; the exact style has none
    kept: tuple[str, ...] = ()  # what stays the same beside them
    world: int | None = None  # len(device_ids), where they can be read off
    launch: str = ""
    entry_module: str = ""  # "package.train", of a script that is started with -m
    used_by: tuple[OtherEntry, ...] = ()  # other scripts that import what is changed here
    missing: tuple[
        str, ...
    ] = ()  # imports that were not found, and may be the project's own: nobody has read them
    unread: tuple[str, ...] = ()  # local modules that are no Python: nobody has looked at them either
    links: Mapping[Path, Path] = field(default_factory=dict, compare=False)  # of modules that a link leads to

    @property
    def files(self) -> tuple[FileConversion, ...]:
        return self.entry, *self.modules

    @property
    def changed_files(self) -> tuple[FileConversion, ...]:
        """Those of the user's own, the entry script first."""
        return tuple(file for file in self.files if file.changed)

    @property
    def helper_file(self) -> dict[Path, bytes]:
        """The module with the helpers, where it has to be written."""
        module = self.helpers
        path = module.before.path if module and module.changed and self.changed else None
        return {path: module.data} if module and path else {}

    @property
    def files_beside(self) -> dict[Path, bytes]:
        """What is written beside the script: its helpers, and local modules that change."""
        changed = {module.before.path: module.data for module in self.modules if module.changed}
        return self.helper_file | {path: data for path, data in changed.items() if path}

    @property
    def written_files(self) -> dict[Path, bytes]:
        """What a conversion in place writes."""
        entry = {self.before.path: self.entry.data} if self.before.path and self.entry.changed else {}
        return self.files_beside | entry

    @property
    def held_files(self) -> dict[Path, bytes | None]:
        """What files held when they were read; None of one that was not there."""
        files = {file.before.path: file.before.data for file in self.files if not file.before.cells}
        held: dict[Path, bytes | None] = {path: data for path, data in files.items() if path}
        return held | (self.helpers.held if self.helpers else {})

    @property
    def is_project(self) -> bool:
        """Whether more than the script itself changes, or its name must stay."""
        return self.keeps_name or any(module.changed for module in self.modules)

    @property
    def before(self) -> SourceFile:
        return self.entry.before

    @property
    def after(self) -> str:
        return self.entry.after

    @property
    def changed(self) -> bool:
        return any(file.changed for file in self.files)

    @property
    def edits(self) -> tuple[Planned, ...]:
        return tuple(edit for file in self.files if file.plan and file.changed for edit in file.plan.edits)

    @property
    def hazards(self) -> tuple[Planned, ...]:
        """Open ones."""
        return tuple(hazard for file in self.files if file.plan for hazard in file.plan.hazards)

    @property
    def accepted(self) -> tuple[Planned, ...]:
        """Hazards that a person has answered."""
        return tuple(hazard for file in self.files if file.plan for hazard in file.plan.accepted)

    @property
    def notes(self) -> tuple[Planned, ...]:
        return tuple(note for file in self.files if file.plan for note in file.plan.notes)

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
        return "".join(file.diff() for file in self.changed_files)

    def diff_bytes(self) -> bytes:
        return b"".join(file.diff_bytes() for file in self.changed_files)


def convert(
    project: Project, options: Options | None = None, begin: Callable[[str], object] = str
) -> Conversion:
    """Convert the entry script of a project and its local modules; nothing is imported, run or written.

    `begin` gets a line for each part of the work when it begins: of 300 modules it takes ten seconds.
    """
    try:
        with garbage_waits():
            conversion = replace(
                _convert(project, options or Options(), begin), style=(options or Options()).style
            )
    except RecursionError as error:
        name = project.entry.name
        raise ConversionError(
            f"{name}: nested too deeply to be converted, it or a module of its own"
        ) from error
    refuse_unmatched(
        (options or Options()).accept, conversion.accepted, conversion.hazards, project.entry.name
    )
    return replace(
        conversion,
        missing=tuple(filter(may_be_local, project.missing)),
        unread=(*project.unread, *conversion.unread),
        links=project.links,
        entry_module=project.entry_module,
    )


def _beside_sameness(facts: Facts, style: str) -> tuple[tuple[StyleDifference, ...], tuple[str, ...]]:
    """What is not the same any more, and what stays so beside it; the exact style has no differences."""
    if style == "exact":
        return (), ()
    from dp2ddp.codemod.idiomatic.style_differences import (
        find_differences,
        find_kept,
    )  # the exact style needs none of it

    return find_differences(facts), find_kept(facts)


@dataclass(frozen=True, eq=False)
class ProjectPlan:
    """What a conversion would do to each file of a project, before any text is changed."""

    facts: Facts
    strategy: Strategy
    plans: Mapping[Facts, Plan]
    whole: bool = False  # an open hazard anywhere: nothing is written

    @property
    def converts(self) -> bool:
        """Whether anything is written: half a conversion helps nobody."""
        wraps = any(plan.wraps_converted for plan in self.plans.values())
        hazards = self.whole and any(plan.hazards for plan in self.plans.values())
        return self.facts.entry.first_act is not None and wraps and not hazards


def plan_project(project: Project, options: Options | None = None) -> ProjectPlan | None:
    """What converting would do, without doing it; None where nothing in the project is of DataParallel."""
    with garbage_waits():
        return _plan(project, options or Options(), str)


def _plan(project: Project, options: Options, begin: Callable[[str], object]) -> ProjectPlan | None:
    rules = pick_rules(options.select, options.ignore, options.style)
    _refuse_half_converted(project)
    if not _may_matter(project):
        parse(project.entry)  # a file that is no Python is an error all the same
        return None
    _refuse_unread(project)
    files = f"{1 + len(project.modules)} file{'s' if project.modules else ''}"
    begin(f"1 of 4: finding out what {files} do{'' if project.modules else 'es'}")
    facts = gather_facts(project)
    begin("2 of 4: choosing how data and gradients go")
    strategy = choose(facts, options.data, options.join, options.gradients)
    if not facts.uses_data_parallel:  # a note at most: wrapped for one device only
        plan = make_plan(facts, strategy, [rule for rule in rules if rule.code == WRAP_RULE], options.accept)
        return ProjectPlan(facts, strategy, {facts: plan})
    begin(f"3 of 4: planning the changes of {files}")
    plans = {file: make_plan(file, strategy, rules, options.accept) for file in facts.files}
    if any(plan.lifts for plan in plans.values()):
        against = _against_lean(project, facts, plans, options)
        strategy = with_tier(facts, strategy, choose_tier(facts, strategy, plans, options.tier, against))
    if strategy.helpers.value != FULL:
        plans = {file: make_plan(file, strategy, rules, options.accept) for file in facts.files}
    planned = ProjectPlan(facts, strategy, plans, STYLES[options.style].whole)
    if not planned.converts:
        return planned
    return replace(planned, plans={file: with_unused_imports(file, plan) for file, plan in plans.items()})


def _convert(project: Project, options: Options, begin: Callable[[str], object]) -> Conversion:
    if os.environ.get(NEW_CODEMOD) == "small" and options.style == EXACT:
        from dp2ddp.codemod.small.convert import convert_small  # it stands beside this one (issue 27)

        return convert_small(project, options)
    if os.environ.get(NEW_CODEMOD) == "small":
        from dp2ddp.codemod.small_idiomatic.convert import convert_idiomatic

        return convert_idiomatic(project, options)
    planned = _plan(project, options, begin)
    if planned is None:
        return Conversion(FileConversion(project.entry, project.entry.text))
    if not planned.facts.uses_data_parallel or not planned.converts:
        return _unchanged(planned.plans, planned.strategy)
    begin("4 of 4: changing the files")
    return _convert_files(project, planned.facts, planned.plans, planned.strategy, options)


def _may_matter(project: Project) -> bool:
    """Whether DataParallel is named anywhere, or may be looked up by a name that a file of settings gives."""
    texts = [project.entry.text, *(module.source.text for module in project.modules)]
    if any(map(MENTION.search, texts)):
        return True
    path = project.entry.path
    return path is not None and any(map(may_look_up, texts)) and any(find_mentions(path.parent))


# The templates whose helpers fit together in one way only, which was chosen for another script.
CHOSEN_TOGETHER = {"plain", "lean", "ddp", "in_turn", "parts", "rows", "batches", "shared", "feed"}
FROM_HELPERS = re.compile(rf"^from (?:{NAME}|{re.escape(PACKAGE)}) import (.*)", re.MULTILINE)
JOINS = re.compile(r"\bjoin_process_group\b|\binit_distributed\b")


def _refuse_half_converted(project: Project) -> None:
    """A ConversionError for a script whose models or loaders were converted with another one, and it was not."""
    if JOINS.search(project.entry.text):
        return
    library = all_templates()
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


def _against_lean(
    project: Project, facts: Facts, plans: Mapping[Facts, Plan], options: Options
) -> Iterator[str]:
    """What the smaller tiers cannot do: other choices, and scripts without ranks that run what changes."""
    if options.data or options.join or options.gradients:
        yield "other choices are asked for"
    paths = (file.script.source.path for file in facts.others if plans[file].lifts)
    for other in other_entries(project, [path for path in paths if path]):
        yield f"{other.uses[0].name} is imported by {other.path.name}, too"


def _unchanged(plans: Mapping[Facts, Plan], strategy: Strategy) -> Conversion:
    files = [
        FileConversion(file.script.source, file.script.source.text, plan) for file, plan in plans.items()
    ]
    return Conversion(files[0], tuple(files[1:]), strategy=strategy)


def _convert_files(
    project: Project, facts: Facts, plans: Mapping[Facts, Plan], strategy: Strategy, options: Options
) -> Conversion:
    keeps_name = bool(project.entry_names)
    is_project = keeps_name or any(plans[file].edits for file in facts.others)
    place = options.helpers
    needs_helpers = any(plan.lifts for plan in plans.values())
    if place is HelperPlace.IN_SCRIPT and is_project:
        place = HelperPlace.BESIDE  # several files need them
    files = [
        FileConversion(file.script.source, edit_file(file, plan, place), plan) for file, plan in plans.items()
    ]
    for (file, plan), converted in zip(plans.items(), files, strict=True):
        check_result(file.script, plan, converted.after)
    differences, kept = _beside_sameness(facts, options.style)
    return Conversion(
        files[0],
        tuple(files[1:]),
        _helpers(project, list(plans.values()), options)
        if needs_helpers and place is HelperPlace.BESIDE
        else None,
        keeps_name,
        strategy,
        world=world_of(facts),
        launch=launch_line(facts, entry_name(facts) if is_project else None),
        differences=differences,
        kept=kept,
    )


def edit_file(facts: Facts, plan: Plan, place: HelperPlace) -> str:
    """The new text of a file."""
    edits, header = plan.text_edits(), make_header(facts, plan, place)
    if not edits and not header:
        return facts.script.source.text
    from dp2ddp.codemod.apply import edit_text  # libcst takes longer to import than most files to convert

    return edit_text(facts.script, edits, header)


def _helpers(project: Project, plans: list[Plan], options: Options) -> HelperModule:
    """The module with the helpers: in the folder that is first on sys.path, where every file finds it."""
    needed = {lift.helper for plan in plans for lift in plan.lifts}
    there = project.helpers or SourceFile(project.helper_path, "")
    return helper_module(
        there, needed, all_templates(), is_there=project.helpers is not None, renew=options.renew_helpers
    )
