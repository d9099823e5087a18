"""What is known about a script: complete before the first rule runs, and frozen."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from dp2ddp.codemod.facts.devices import DeviceIndex, find_device_indices
from dp2ddp.codemod.facts.effects import Effect, find_effects
from dp2ddp.codemod.facts.entry import NO_ENTRY, Entry, find_entry, last_import
from dp2ddp.codemod.facts.forward_state import ForwardState, Kept, data_writes
from dp2ddp.codemod.facts.frozen import wraps_frozen_models_only
from dp2ddp.codemod.facts.handed_on import FunctionMention, find_mentions
from dp2ddp.codemod.facts.loaders import LoaderFact, against_sharding, find_loaders
from dp2ddp.codemod.facts.looked_up import lookups
from dp2ddp.codemod.facts.models import (
    Wrap,
    WrapKind,
    calls_by_hand,
    copies_by_hand,
    find_wraps,
    foreign_callbacks,
    foreign_wraps,
    hidden_references,
    subclasses,
)
from dp2ddp.codemod.facts.modules import Modules
from dp2ddp.codemod.facts.names import Names
from dp2ddp.codemod.facts.origins import Origins
from dp2ddp.codemod.facts.own_mode import launcher_matters
from dp2ddp.codemod.facts.places import ExecutionPlace, Places
from dp2ddp.codemod.facts.program import Program
from dp2ddp.codemod.facts.randomness import host_draws_in_forward
from dp2ddp.codemod.facts.reach import Reach
from dp2ddp.codemod.facts.redefined import redefined
from dp2ddp.codemod.facts.replication import Replication
from dp2ddp.codemod.facts.script import CallSite, Script
from dp2ddp.codemod.facts.sharing import against_sharing, shared_loaders
from dp2ddp.codemod.facts.sources import Feeds, find_feeds
from dp2ddp.codemod.facts.threads import runs_in_threads_alone
from dp2ddp.codemod.facts.traces import trace_of_forward
from dp2ddp.codemod.facts.training import Training, find_training
from dp2ddp.codemod.facts.training_script import TrainingScript
from dp2ddp.codemod.facts.unwrapped_models import UnwrappedModels
from dp2ddp.codemod.facts.writers import Writers
from dp2ddp.source.helper_module import IMPORTED
from dp2ddp.source.projects import Project


@dataclass(frozen=True, eq=False)
class Facts:
    """One file of a project, and everything that rules may ask about it.

    `others` are the facts of the local modules that the entry script reaches; a module's own facts have none.
    """

    script: Script
    modules: Modules  # all files, and what a name of one means in another
    reach: Reach
    entry: Entry
    wraps: tuple[Wrap, ...]  # in this file
    all_wraps: tuple[Wrap, ...]  # in the project
    hides_wraps: (
        bool  # DataParallel is handed on somewhere in it, so that there may be wraps that are not seen
    )
    wraps_frozen_only: bool  # all wrapped models are frozen: what is trained is not among them
    devices: tuple[DeviceIndex, ...]
    effects: tuple[Effect, ...]
    mentions: tuple[FunctionMention, ...]  # of functions that write
    own_objects: tuple[Effect, ...]  # of classes that the project derives from what writes, in all files
    places: Places
    replication: Replication  # in the project
    training: Training
    loaders: tuple[LoaderFact, ...]
    feeds: Feeds
    names: Names
    program: Script  # all files as one
    others: tuple[Facts, ...] = ()

    @property
    def is_entry(self) -> bool:
        """Whether this file is the one that is started."""
        return self.script is self.modules.entry

    @cached_property
    def training_script(self) -> TrainingScript:
        """What the questions of ordinary.py are asked of."""
        return TrainingScript(self.program, self.all_wraps, self.training, self.places, self.reach)

    @property
    def files(self) -> tuple[Facts, ...]:
        return self, *self.others

    @cached_property
    def is_converted(self) -> bool:
        """Whether dp2ddp has been here: the entry script joins a process group by our helper."""
        entry = self.modules.entry
        names = ((call.name or "").rstrip("_") for call in entry.calls)
        return any(
            name.endswith("join_process_group")
            or name.startswith(IMPORTED)
            and name.endswith(".init_distributed")
            or name.endswith("init_distributed")
            and entry.helper_lines
            for name in names
        )

    @cached_property
    def uses_data_parallel(self) -> bool:
        """Whether there is anything to convert or to warn of."""
        if any(not wrap.is_single for wrap in self.all_wraps):
            return True
        return not self.is_converted and any(file.names_data_parallel for file in self.files)

    @cached_property
    def names_data_parallel(self) -> bool:
        """Whether this file means DataParallel in a way that is no wrap of its own."""
        nodes = (
            *hidden_references(self.script),
            *subclasses(self.script, self.modules),
            *(call.node for call in calls_by_hand(self.script)),
            *(call.node for call in copies_by_hand(self.script)),
            *(call.node for call in foreign_wraps(self.script, self.modules)),
            *foreign_callbacks(self.script, self.modules),
            *(lookup.node for lookup in lookups(self.script, self.modules)),
        )
        return any(self.reach.holds(self.script, node) for node in nodes)

    @cached_property
    def draws_on_host(self) -> bool:
        """Whether the forward of a model draws from a random stream that all replicas share."""
        return any(
            self.reach.holds(script, call.node)
            for script in self.modules.scripts
            for call in host_draws_in_forward(script, self.places)
        )

    @cached_property
    def forward_state(self) -> tuple[Kept, ...]:
        """What forwards of this file fill, and the project reads elsewhere."""
        everything = ForwardState(
            self.script, self.places, self.all_wraps, self.modules.scripts, self.reach
        ).kept()
        return tuple(kept for kept in everything if not self.replication.is_message(self.script, kept.node))

    @cached_property
    def data_writes(self) -> tuple[ast.AST, ...]:
        """Where forwards of this file change parameters behind autograd's back."""
        return tuple(data_writes(self.script, self.places))

    @cached_property
    def launcher_matters(self) -> bool:
        """Whether anything of the project may ask whether it runs among ranks."""
        return launcher_matters(self.modules)

    @cached_property
    def needs_rank_order(self) -> bool:
        """Whether replicas must run one after another: they share random streams, or something that they fill."""
        shared = (
            (file.script, node)
            for file in self.files
            for node in (*(kept.node for kept in file.forward_state if kept.is_reached), *file.data_writes)
        )
        return self.draws_on_host or any(self.reach.holds(*place) for place in shared)

    @property
    def can_keep_rank_order(self) -> bool:
        """Whether all wraps can: those that are seen, and have DataParallel's own parts."""
        return (
            not self.hides_wraps
            and not self.replication.changes_wrappers
            and all(wrap.kind is WrapKind.WRAP and wrap.is_readable for wrap in self.all_wraps)
        )

    @cached_property
    def shard_stopper(self) -> str | None:
        """What keeps each rank from loading its own rows alone (None: nothing)."""
        reasons = (
            why
            for file in self.files
            for why in against_sharding(file.script, file.loaders, file.shared_loaders)
        )
        none = None if any(file.loaders for file in self.files) else "no DataLoader is made"
        return none or self._redefined or self._wrapped_otherwise or next(reasons, None)

    @cached_property
    def shared_loaders(self) -> tuple[CallSite, ...]:
        """The loaders of this file that rank 0 may iterate for all ranks, if the project lets it."""
        calls = shared_loaders(self.script, self.modules, self.places)
        return tuple(call for call in calls if self.reach.holds(self.script, call.node))

    @cached_property
    def share_stopper(self) -> str | None:
        """What keeps rank 0 from iterating the loaders for all ranks (None: nothing)."""
        if not any(file.shared_loaders for file in self.files):
            return "no DataLoader is made"
        reasons = (
            why
            for file in self.files
            for why in against_sharing(
                file.script,
                self.places,
                self.modules.scripts,
                self.reach,
                self.training.words,
                file.feeds.makers,
            )
        )
        return next(reasons, None)

    @property
    def feed_reason(self) -> str | None:
        """Why ranks could not read the data alike, so that rank 0 has to read it for all (None: they can)."""
        return next((file.feeds.why for file in self.files if file.feeds.why), None)

    def is_of_rank_zero(self, call: CallSite, by_sharing: bool) -> bool:
        """Whether a call runs on rank 0 alone: in a thread, or in a data set whose loader it iterates for all."""
        return self.places.of(call.node) is ExecutionPlace.THREAD or by_sharing and call in self.feeds.live

    @property
    def gradient_stopper(self) -> str | None:
        """What keeps DDP's reducer from summing the gradients (None: nothing)."""
        if self.needs_rank_order:
            return "replicas share random streams of the host, or what they fill, and take turns"
        return self._redefined or self._wrapped_otherwise or self.training.reducer_stopper

    @cached_property
    def forward_trace(self) -> str | None:
        """By what the forward of a model may leave a trace, so that a replica of it must run (None: by nothing)."""
        if self.needs_rank_order:
            return "replicas share random streams of the host, or what they fill"
        return (
            self._redefined
            or self._wrapped_otherwise
            or trace_of_forward(self.modules, self.places, self.all_wraps)
        )

    @cached_property
    def _redefined(self) -> str | None:
        """Proofs read what a name means, which must be one thing."""
        for file in self.files:
            if redefinition := redefined(file.script):
                name, *places = redefinition
                meanings = ", ".join(self._where(file, place) for place in places)
                return f"`{name}` means two things ({meanings})"
        return None

    def _where(self, file: Facts, node: ast.AST) -> str:
        place = file.script.where(node)
        return place if file is self else f"{file.script.shown}, {place}"

    @property
    def _wrapped_otherwise(self) -> str | None:
        if self.hides_wraps:
            return "DataParallel is handed on, and its wraps are not all seen"
        if self.replication.changes_wrappers:
            return "a part of DataParallel is replaced by the script's own"
        other = next((wrap for wrap in self.all_wraps if wrap.kind is not WrapKind.WRAP), None)
        return f"{other.kind.value} runs a model" if other else None

    @property
    def wrapper_with_parts(self) -> str:
        """What takes the place of a DataParallel with parts of its own."""
        return "SyncedOnRanks" if self.replication.masters else "DataParallelOnRanks"

    @property
    def count(self) -> int | None:
        """How many devices the wraps of the project name."""
        return max((wrap.count for wrap in self.all_wraps if wrap.count), default=None)

    @property
    def ids(self) -> tuple[int, ...] | None:
        """The device_ids that can be read off, of the first wrap that has them."""
        return next((wrap.ids for wrap in self.all_wraps if wrap.ids), None)


@dataclass(frozen=True, eq=False)
class _Whole:
    """What is found out on all files of a project together."""

    modules: Modules
    program: Script
    reach: Reach
    places: Places
    replication: Replication
    wraps: tuple[Wrap, ...]
    training: Training
    loaders: tuple[LoaderFact, ...]
    origins: Origins
    feeds: Mapping[Script, Feeds]
    wraps_frozen_only: bool
    hides_wraps: bool


def gather_facts(project: Project) -> Facts:
    """The facts about the entry script, with those about each local module that it reaches."""
    whole = _read_together(Modules(project))
    effects = {script: tuple(_effects_of_all(script, whole)) for script in whole.modules.scripts}
    own_objects = tuple(effect for kinds in effects.values() for effect in kinds if effect.made)
    writers = Writers(whole.modules, whole.places, whole.reach, effects)
    entry, *others = (
        _facts_of(script, whole, tuple(writers.of(script, effects[script])), own_objects)
        for script in whole.modules.scripts
    )
    return replace(entry, entry=find_entry(whole.modules), others=tuple(others))


def _read_together(modules: Modules) -> _Whole:
    reach = Reach(modules.entry, modules.by_name)
    wraps = tuple(
        wrap
        for script in modules.scripts
        for wrap in find_wraps(script, modules)
        if reach.holds(script, wrap.call.node)
    )
    program = Program(modules, reach) if modules.by_name else modules.entry
    hides_wraps = any(
        reach.holds(script, node) for script in modules.scripts for node in hidden_references(script)
    )
    places = Places(modules, UnwrappedModels(program, wraps, hides_wraps))
    training = find_training(program, wraps, places, reach)
    loaders = find_loaders(program)
    return _Whole(
        modules=modules,
        program=program,
        reach=reach,
        places=places,
        replication=Replication(modules, reach),
        wraps=wraps,
        training=training,
        loaders=loaders,
        origins=Origins(program, wraps),
        wraps_frozen_only=wraps_frozen_models_only(program, wraps),
        feeds={
            script: find_feeds(script, modules, reach, places, training.words) for script in modules.scripts
        },
        hides_wraps=hides_wraps,
    )


def _effects_of_all(script: Script, whole: _Whole) -> Iterator[Effect]:
    """Those that every rank would have: not what only threads and processes do that rank 0 alone starts."""
    fed = not any(feed.stoppers for feed in whole.feeds.values())
    for effect in find_effects(script, whole.modules):
        node = effect.call.node
        in_thread = fed and whole.places.of(node) is ExecutionPlace.THREAD
        if not (in_thread and runs_in_threads_alone(script, node, whole.modules)):
            yield effect


def _facts_of(
    script: Script, whole: _Whole, effects: tuple[Effect, ...], own_objects: tuple[Effect, ...]
) -> Facts:
    """What is known of one file; the training is that of the whole project."""
    here = script.scopes.parents
    return Facts(
        script=script,
        modules=whole.modules,
        reach=whole.reach,
        entry=replace(NO_ENTRY, last_import=last_import(script)),
        wraps=tuple(wrap for wrap in whole.wraps if wrap.call.node in here),
        all_wraps=whole.wraps,
        hides_wraps=whole.hides_wraps,
        wraps_frozen_only=whole.wraps_frozen_only,
        devices=find_device_indices(script, whole.origins),
        effects=effects,
        mentions=find_mentions(script, whole.modules),
        own_objects=own_objects,
        places=whole.places,
        replication=whole.replication,
        training=whole.training,
        loaders=tuple(loader for loader in whole.loaders if loader.call.node in here),
        feeds=whole.feeds[script],
        names=Names(script),
        program=whole.program,
    )
