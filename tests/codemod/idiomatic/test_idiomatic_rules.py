"""Every example of every rule of the idiomatic style, and what is not to be seen in an example."""

from __future__ import annotations

from textwrap import dedent

import pytest

from dp2ddp.codemod.apply import edit_text
from dp2ddp.codemod.conversion import Options
from dp2ddp.codemod.idiomatic.convert import all_rules, convert_idiomatic
from dp2ddp.codemod.knowledge import canonical, knows
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.plan import plan_file
from dp2ddp.codemod.rule import Example, Flags, Rewrites, Rule, UnknownRuleError, code_of
from dp2ddp.source.files import SourceFile
from dp2ddp.source.projects import Project

EXAMPLES = [
    pytest.param(rule, example, id=f"{rule.code}-{index}")
    for rule in all_rules()
    if rule.code.startswith("DDP7")  # the others are the exact style's
    for index, example in enumerate(rule.examples)
]


@pytest.mark.parametrize(("rule", "example"), EXAMPLES)
def test_an_example_holds(rule: Rule, example: Example) -> None:
    before = code_of(example.before)
    program = Program(Project(SourceFile(None, before)), canonical, knows)
    found = plan_file(program.entry, [rule], ())

    after = edit_text(program.entry, found.edits) if found.edits else before

    if isinstance(example, Flags):
        assert any(example.message in each.because for each in found.plan.hazards)
    else:
        assert not found.plan.hazards
        assert after == (code_of(example.after) if isinstance(example, Rewrites) else before)


TRAINS = """
import torch
from torch import nn
from torch.utils.data import DataLoader

net = nn.DataParallel(nn.Linear(8, 3).cuda())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
{more}
"""


def converted(more: str) -> str:
    text = TRAINS.format(more=dedent(more))
    conversion = convert_idiomatic(Project(SourceFile(None, text)), Options(style="idiomatic"))
    assert not conversion.hazards
    return conversion.after


LOOP = """
for epoch in range(3):
    for x in loader:
        net(x).mean().backward()
        optimizer.step()
"""


def test_a_loop_that_trains_and_evaluates_shares_the_loader_that_shuffles_alone() -> None:
    after = converted(
        """
        train = DataLoader(data, batch_size=8, shuffle=True)
        later = DataLoader(others, batch_size=8)
        def run(loader, training):
            for x in loader:
                loss = net(x).mean()
                if training:
                    loss.backward()
                    optimizer.step()
        for epoch in range(3):
            run(train, True)
            run(later, False)
        """
    )
    assert "train = DataLoader(data, batch_size=8 // world_size, sampler=DistributedSampler(data))" in after
    assert "later = DataLoader(others, batch_size=8)" in after
    assert "    train.sampler.set_epoch(epoch)\n    run(train, True)" in after
    assert after.count("set_epoch") == 1


def test_a_batch_size_that_is_read_elsewhere_is_divided_where_it_comes_from() -> None:
    after = converted(
        "size = 16\nloader = DataLoader(data, batch_size=size, shuffle=True)\nhidden = torch.zeros(size)\n"
        + LOOP
    )
    assert "size //= world_size" in after
    assert "batch_size=size, sampler=DistributedSampler(data)" in after


def test_one_that_is_only_shown_is_divided_at_the_loader() -> None:
    after = converted(
        "size = 16\nloader = DataLoader(data, batch_size=size, shuffle=True)\nprint('batches of', size)\n"
        + LOOP
    )
    assert "batch_size=size // world_size" in after
    assert "//=" not in after


def test_what_is_trained_beside_the_wrapped_model_is_averaged_by_hand() -> None:
    beside = "centers = nn.Linear(3, 3).cuda()\nother = torch.optim.SGD(centers.parameters(), lr=0.1)\n"
    loop = LOOP.replace("        optimizer.step()", "        optimizer.step()\n        other.step()")
    loader = "loader = DataLoader(data, batch_size=8, shuffle=True)\n"
    assert "average_gradients(optimizer)\n        optimizer.step()" in converted(beside + loader + loop)
    assert "average_gradients" not in converted(loader + LOOP)


SMALL = "class Small(nn.Module):\n    def forward(self, {arguments}):\n        {line}\n        return x\n"


@pytest.mark.parametrize(
    ("arguments", "line", "expected"),
    [
        ("x", "x = self.a(x)", False),
        ("x, aux=False", "x = self.a(x)", True),
        ("x", "x = x + 1 if x.is_cuda else x", False),
        ("x", "x = self.a(x) if x.mean() > 0 else x", True),
    ],
)
def test_unused_parameters_are_looked_for_where_a_forward_may_leave_layers_out(
    arguments: str, line: str, expected: bool
) -> None:
    after = converted(SMALL.format(arguments=arguments, line=line) + LOOP)
    assert ("find_unused_parameters=True" in after) is expected


def test_a_comment_says_where_a_batch_made_by_hand_is_to_be_cut() -> None:
    after = converted("for x in torch.randn(5, 8, 8):\n    net(x).mean().backward()\n    optimizer.step()\n")
    assert "# dp2ddp: every rank trains on the whole batch here" in after
    assert "DistributedSampler" not in after


def test_names_that_the_script_has_itself_are_left_to_it() -> None:
    after = converted(
        "rank = [3, 1, 2]\ndist = 0.5\ntorch.save(net.state_dict(), 'net.pt')\n"
        + LOOP.replace("loader", "rank")
    )
    assert "import torch.distributed as torch_dist" in after
    assert "if torch_dist.get_rank() == 0:\n    torch.save" in after


def test_a_wrap_moves_behind_what_still_changes_the_model() -> None:
    after = converted(
        "model = nn.Linear(8, 3).cuda()\nmodel = nn.DataParallel(model)\nmodel.module.bias = None\n"
        "print(model.module)\n"
    )
    assert "model.bias = None\nmodel = DDP(model, device_ids=[local_rank])\nprint(model.module)" in after


def test_without_cuda_ranks_meet_over_gloo() -> None:
    text = "import torch\nnet = torch.nn.DataParallel(torch.nn.Linear(2, 2))\nnet(torch.ones(4, 2)).mean().backward()\n"
    after = convert_idiomatic(Project(SourceFile(None, text)), Options(style="idiomatic")).after
    assert 'dist.init_process_group("gloo")' in after
    assert "net = DDP(torch.nn.Linear(2, 2))" in after
    assert "set_device" not in after


def test_rules_can_be_picked() -> None:
    project = Project(SourceFile(None, TRAINS.format(more="torch.save(net.state_dict(), 'net.pt')")))

    wrapped = convert_idiomatic(project, Options(style="idiomatic", select=("DDP702",))).after
    unguarded = convert_idiomatic(project, Options(style="idiomatic", ignore=("DDP705",))).after

    assert "DDP(" in wrapped
    assert "init_process_group" not in wrapped
    assert "rank == 0" not in unguarded
    with pytest.raises(UnknownRuleError):
        convert_idiomatic(project, Options(style="idiomatic", select=("DDP799",)))


@pytest.mark.parametrize(
    ("test", "line"),
    [
        ("args.parallel", 'assert args.parallel, "ranks'),
        ("torch.cuda.device_count() > 1", "if dist.get_world_size() > 1:"),
        ("device == 'cuda'", "if device == 'cuda':"),
        ("wants(args)", "# dp2ddp: ranks that do not wrap it would train apart"),
    ],
)
def test_a_wrap_under_a_condition(test: str, line: str) -> None:
    text = TRAINS.format(more="").replace(
        "net = nn.DataParallel(nn.Linear(8, 3).cuda())", "net = nn.Linear(8, 3).cuda()"
    )
    wrap = f"device = 'cuda'\nif {test}:\n    net = nn.DataParallel(net)\n"
    after = convert_idiomatic(Project(SourceFile(None, text + wrap)), Options(style="idiomatic")).after

    assert line in after
    assert after.count("would train apart") == ("args" in test)


def test_whether_there_is_a_device_is_still_asked_of_torch() -> None:
    after = converted("n = torch.cuda.device_count()\nhas_any = torch.cuda.device_count() > 0\n")

    assert "n = dist.get_world_size()" in after
    assert "has_any = torch.cuda.device_count() > 0" in after


def test_what_is_saved_under_a_condition_is_saved_under_one_if() -> None:
    after = converted("best = True\nif best:\n    torch.save(net.state_dict(), 'net.pt')\n")

    assert "if best and rank == 0:\n    torch.save(" in after
