"""How layers of replicas talk with each other: found under any names, and only where somebody calls them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dp2ddp.codemod.facts import Facts, gather_facts
from dp2ddp.source.files import SourceFile
from dp2ddp.source.projects import Project

CORPUS = Path(__file__).parents[2] / "corpus" / "models"
SCRIPT = (CORPUS / "synced_bn_with_callback.py").read_text()
USUAL = ("_master_callback", "register_slave", "run_master", "run_slave")


def facts_of(text: str) -> Facts:
    return gather_facts(Project(SourceFile("train.py", text)))


def names(text: str) -> tuple[str, ...] | None:
    """The names that the decorator gets; None where the protocol is not known."""
    replication = facts_of(text).replication
    assert bool(replication.masters) != bool(replication.unread)
    for master in replication.masters:
        told = master.protocol
        return master.callback, told.register, told.run_master, told.run_slave
    return None


def changed(*changes: tuple[str, str]) -> str:
    text = SCRIPT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


FORKS = {
    "as it is": (changed(), USUAL),
    "renamed": (
        changed(
            ("register_slave", "enrol"),
            ("run_master", "lead"),
            ("run_slave", "follow"),
            ("_sync_master", "_primary"),
            ("_slave_pipe", "_line"),
            ("_master_callback", "_reduce"),
            ("SyncMaster", "Coordinator"),
        ),
        ("_reduce", "enrol", "lead", "follow"),
    ),
    "by keywords": (
        changed(
            ("SyncMaster(self._data", "SyncMaster(master_callback=self._data"),
            ("register_slave(copy_id)", "register_slave(identifier=copy_id)"),
        ),
        USUAL,
    ),
    "the number is an attribute": (
        changed(("register_slave(copy_id)", "register_slave(self._parallel_id)")),
        USUAL,
    ),
    "one call of two methods": (
        changed(
            ("mean, inv_std = self._sync_master.run_master(message)", "run = self._sync_master.run_master"),
            ("mean, inv_std = self._slave_pipe.run_slave(message)", "run = self._slave_pipe.run_slave"),
            ("        if self.affine:\n", "        mean, inv_std = run(message)\n        if self.affine:\n"),
        ),
        USUAL,
    ),
    "asked for by getattr": (
        changed(
            ("m.__data_parallel_replicate__(ctxs[j], i)", "getattr(m, '__data_parallel_replicate__')(ctxs[j], i)"),
        ),
        USUAL,
    ),
    "more is asked of the master": (
        changed(("message = _Child", "print(self._sync_master.nr_slaves)\n        message = _Child")),
        None,
    ),
    "the queue itself is used": (
        changed(("self._slave_pipe.run_slave(message)", "self._slave_pipe.queue.put(message)")),
        None,
    ),
    "the master gets more": (
        changed(
            ("SyncMaster(self._data_parallel_master)", "SyncMaster(self._data_parallel_master, 3)"),
            ("def __init__(self, master_callback):", "def __init__(self, master_callback, limit):"),
        ),
        None,
    ),
    "messages without a function": (
        changed(("results = self._master_callback(intermediates)", "results = intermediates")),
        None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("fork", FORKS)
def test_the_protocol_is_read_under_any_names(fork: str) -> None:
    text, wanted = FORKS[fork]
    assert names(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        changed(("net = DataParallelWithCallback(", "net = nn.DataParallel(")),  # nobody calls the layers back
        changed(("convert_model(net)", "net"), ("SynchronizedBatchNorm2d(4, affine=False)", "nn.BatchNorm2d(4)")),
    ],
    ids=["no callbacks", "no layers"],
)  # fmt: skip
def test_what_nobody_calls_is_left_alone(text: str) -> None:
    facts = facts_of(text)
    assert facts.replication.masters == facts.replication.unread == ()
    assert not facts.replication.changes_wrappers


def test_the_exchange_is_no_memory_of_the_forward() -> None:
    for text in (SCRIPT, (CORPUS / "synced_bn_inactive.py").read_text()):
        facts = facts_of(text)
        assert facts.forward_state == ()
        assert not facts.needs_rank_order


def test_parts_that_are_put_in_place_count_where_they_run() -> None:
    put = "import torch\nnet = torch.nn.DataParallel(net)\ndef change(net):\n    net.replicate = print\n"
    assert not facts_of(put).replication.puts_parts
    assert facts_of(put + "change(net)\n").replication.puts_parts


DRAWS = """
import random
import torch
class Net(torch.nn.Module):
    def forward(self, x):
        return x * random.random()
"""


@pytest.mark.parametrize(
    "wrap",
    [
        "net = torch.nn.DataParallel(Net())\nnet.gather = join\n",
        "net = torch.nn.DataParallel(Net())\nsetattr(net, 'gather', join)\n",
        "net = torch.nn.DataParallel(Net(), **options)\n",
    ],
)
def test_wraps_with_parts_of_their_own_take_no_turns(wrap: str) -> None:
    facts = facts_of(DRAWS + wrap)
    assert facts.needs_rank_order
    assert not facts.can_keep_rank_order
    assert facts_of(DRAWS + "net = torch.nn.DataParallel(Net())\n").can_keep_rank_order


def test_a_layer_called_gather_is_no_part_of_a_wrapper() -> None:
    layer = (
        "class Net(torch.nn.Module):\n    def __init__(self):\n        self.gather = torch.nn.Linear(2, 2)\n"
    )
    assert not facts_of(f"import torch\n{layer}net = torch.nn.DataParallel(Net())\n").replication.puts_parts
