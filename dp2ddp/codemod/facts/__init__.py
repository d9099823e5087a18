"""What is known about a script: complete before the first rule runs, and frozen."""

from __future__ import annotations

from dataclasses import dataclass

from dp2ddp.codemod.facts.devices import DeviceIndex, find_device_indices
from dp2ddp.codemod.facts.effects import Effect, find_effects
from dp2ddp.codemod.facts.elsewhere import Found, find_elsewhere
from dp2ddp.codemod.facts.entry import Entry, find_entry
from dp2ddp.codemod.facts.flow import Flow, find_flow
from dp2ddp.codemod.facts.loaders import Loader, find_loaders
from dp2ddp.codemod.facts.models import (
    Wrap,
    calls_by_hand,
    class_references,
    find_wraps,
    foreign_wraps,
    is_type_test,
)
from dp2ddp.codemod.facts.names import Names
from dp2ddp.codemod.facts.places import Places
from dp2ddp.codemod.facts.script import Script
from dp2ddp.codemod.facts.training import Training, find_training
from dp2ddp.source.projects import Project


@dataclass(frozen=True, eq=False)
class Facts:
    """One script, and everything that rules may ask about it."""

    script: Script
    entry: Entry
    wraps: tuple[Wrap, ...]
    devices: tuple[DeviceIndex, ...]
    effects: tuple[Effect, ...]
    places: Places
    training: Training
    loaders: tuple[Loader, ...]
    flow: Flow
    names: Names
    elsewhere: tuple[Found, ...]

    @property
    def is_converted(self) -> bool:
        """Whether dp2ddp has been here: the script joins a process group by our helper."""
        names = ((call.name or "").rstrip("_") for call in self.script.calls)
        return any(name.endswith("join_process_group") for name in names)

    @property
    def uses_data_parallel(self) -> bool:
        """Whether there is anything to convert or to warn of."""
        if any(not wrap.is_single for wrap in self.wraps):
            return True
        if self.is_converted:
            return False
        if any(found.wraps for found in self.elsewhere):
            return True
        references = any(not is_type_test(self.script, one) for one in class_references(self.script))
        by_hand = next(calls_by_hand(self.script), None) or next(foreign_wraps(self.script), None)
        return references or by_hand is not None

    @property
    def count(self) -> int | None:
        """How many devices the wraps name."""
        return max((wrap.count for wrap in self.wraps if wrap.count), default=None)

    @property
    def ids(self) -> tuple[int, ...] | None:
        """The device_ids that can be read off, of the first wrap that has them."""
        return next((wrap.ids for wrap in self.wraps if wrap.ids), None)


def gather_facts(project: Project) -> Facts:
    script = Script(project.entry)
    wraps = find_wraps(script)
    places = Places(script)
    training = find_training(script, wraps, places)
    loaders = find_loaders(script)
    return Facts(
        script=script,
        entry=find_entry(script),
        wraps=wraps,
        devices=find_device_indices(script),
        effects=find_effects(script),
        places=places,
        training=training,
        loaders=loaders,
        flow=find_flow(script, wraps, loaders, training),
        names=Names(script),
        elsewhere=find_elsewhere(script, project.modules),
    )
