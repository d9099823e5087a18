"""Every example of every rule of the idiomatic style, and what is not to be seen in an example."""

from __future__ import annotations

from textwrap import dedent

import pytest

from dp2ddp.codemod.conversion import Options
from dp2ddp.codemod.idiomatic.convert import all_rules, convert_idiomatic
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.plans.plan import plan_file
from dp2ddp.codemod.rule import Example, Flags, Rewrites, Rule, code_of
from dp2ddp.codemod.writing.apply import edit_text
from dp2ddp.errors import OptionError
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
    program = Program(Project(SourceFile(None, before)))
    found = plan_file(program.entry, [rule], ())

    after = edit_text(program.entry, found.text_edits) if found.edits else before

    if isinstance(example, Flags):
        assert all(any(said in each.because for each in found.hazards) for said in example.messages)
    else:
        assert not found.hazards
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
    told = "        loader.sampler.set_epoch(loader.sampler.epoch + 1)\n    for x in loader:"
    assert f"    if isinstance(loader.sampler, DistributedSampler):\n{told}" in after
    assert after.count("set_epoch") == 1


@pytest.mark.parametrize(
    ("use", "said"), [("hidden = torch.zeros(size)", True), ("print('batches of', size)", False)]
)
def test_a_comment_says_that_a_batch_size_is_read_elsewhere(use: str, said: bool) -> None:
    after = converted(f"size = 16\nloader = DataLoader(data, batch_size=size, shuffle=True)\n{use}\n{LOOP}")

    assert "batch_size=size // world_size, sampler=DistributedSampler(data)" in after
    assert ("# dp2ddp: a rank's batches have 1/W of size rows" in after) is said


def test_what_is_trained_beside_the_wrapped_model_is_averaged_by_hand() -> None:
    beside = "centers = nn.Linear(3, 3).cuda()\nother = torch.optim.SGD(centers.parameters(), lr=0.1)\n"
    loop = LOOP.replace("        optimizer.step()", "        optimizer.step()\n        other.step()")
    loader = "loader = DataLoader(data, batch_size=8, shuffle=True)\n"
    assert "average_gradients(optimizer)\n        optimizer.step()" in converted(beside + loader + loop)
    assert "average_gradients" not in converted(loader + LOOP)


BESIDE = """
adaptor = nn.Linear(3, 3).cuda()
optimizer = torch.optim.SGD(list(net.parameters()) + list(adaptor.parameters()), lr=0.1)
def train(student, adaptor):
    adaptor(student(torch.ones(4, 8))).mean().backward()
    optimizer.step()
train(net, adaptor)
"""


def test_a_model_that_goes_the_same_ways_as_the_wrapped_one_is_another() -> None:
    assert "    average_gradients(optimizer)\n    optimizer.step()" in converted(BESIDE)


SMALL = "class Small(nn.Module):\n    def forward(self, {arguments}):\n        {line}\n        return x\n"


@pytest.mark.parametrize(
    ("arguments", "line", "expected"),
    [
        ("x", "x = self.a(x)", False),
        ("x, aux=False", "x = self.a(x)", False),
        ("x, aux=False", "x = self.a(x, aux)", True),
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
    assert "# dp2ddp: each rank gets whole batches" in after
    assert "sampler=" not in after


def test_names_that_the_script_has_itself_are_left_to_it() -> None:
    after = converted(
        "rank = [3, 1, 2]\ndist = 0.5\ntorch.save(net.state_dict(), 'net.pt')\n"
        "train_dataset = train_set = training_data = Rows()\n"
        "other = DataLoader(Rows(), batch_size=8, shuffle=True)\nfor x in other: net(x).mean().backward()\n"
        + LOOP.replace("loader", "rank")
    )
    assert "train_dataset_ = Rows()\nother = DataLoader(train_dataset_, " in after
    assert "import torch.distributed as dist_" in after
    assert "if dist_.get_rank() == 0:\n    torch.save" in after


VISIBLE = """
import os
import torch
def main():
    os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"
    net = torch.nn.DataParallel(torch.nn.Linear(2, 2).cuda())
    save(net)
def save(net):
    torch.save(net.state_dict(), "net.pt")
main()
"""


def test_ranks_join_behind_the_choice_of_devices_and_no_other_function_knows_their_names() -> None:
    after = convert_idiomatic(Project(SourceFile(None, VISIBLE)), Options(style="idiomatic")).after

    chosen = after.index("CUDA_VISIBLE_DEVICES")
    assert chosen < after.index("torch.cuda.set_device(") < after.index("net = DDP(")
    assert "    if dist.get_rank() == 0:\n        torch.save(" in after
    assert "device_ids=[torch.cuda.current_device()]" in after


def test_parameters_that_come_behind_the_wrap_are_averaged() -> None:
    after = converted(
        "model = nn.Linear(8, 3).cuda()\nmodel = nn.DataParallel(model)\nmodel.module.bias = None\noptimizer.step()\n"
    )
    assert "average_gradients(optimizer)\noptimizer.step()" in after


def test_rules_can_be_picked() -> None:
    project = Project(SourceFile(None, TRAINS.format(more="torch.save(net.state_dict(), 'net.pt')")))

    wrapped = convert_idiomatic(project, Options(style="idiomatic", select=("DDP702",))).after
    unguarded = convert_idiomatic(project, Options(style="idiomatic", ignore=("DDP705",))).after

    assert "DDP(" in wrapped
    assert "init_process_group" not in wrapped
    assert "rank == 0" not in unguarded
    with pytest.raises(OptionError):
        convert_idiomatic(project, Options(style="idiomatic", select=("DDP799",)))


@pytest.mark.parametrize(
    ("test", "is_said"),
    [("args.parallel", True), ("torch.cuda.device_count() > 1", False), ("device == 'cuda'", False)],
)
def test_a_wrap_that_hangs_on_an_option(test: str, is_said: bool) -> None:
    wrap = "net = nn.DataParallel(nn.Linear(8, 3).cuda())"
    text = TRAINS.format(more="").replace(wrap, f"device = 'cuda'\nif {test}:\n    {wrap}")
    after = convert_idiomatic(Project(SourceFile(None, text)), Options(style="idiomatic")).after

    assert f"if {test}:" in after
    assert ("    # dp2ddp: ranks that do not wrap it would train apart" in after) is is_said


TEACHER = "teacher = nn.DataParallel(load('big.pt'))\n"
SCALE = "class Scale(nn.Module):\n    def forward(self, x):\n        return x / 2\nscale = nn.DataParallel(Scale())\n"


def test_what_may_have_nothing_to_train_is_wrapped_if_it_has() -> None:
    after = converted(TEACHER + SCALE)

    assert "teacher = load('big.pt').cuda()\nteacher = DDP(teacher, device_ids=[local_rank]) if any(" in after
    assert "scale = Scale().cuda()\n" in after


def test_parts_of_a_class_that_derives_from_data_parallel_give_way_to_ddp() -> None:
    own = "class Own(nn.DataParallel):\n    def __init__(self, first, *more):\n        super().__init__(*more)\n"
    after = converted(
        f"{own}    def scatter(self, *given):\n        return given\nother = Own(2, nn.Linear(2, 2).cuda())\n"
    )

    assert "# dp2ddp: scatter of its own no longer run" in after
    assert "other = DDP(nn.Linear(2, 2).cuda(), device_ids=[local_rank])" in after


def test_a_loader_that_comes_from_a_function_is_told_its_epoch_by_its_name_there() -> None:
    after = converted(
        """
        def loaders():
            train = DataLoader(data, batch_size=8, shuffle=True)
            test = DataLoader(data, batch_size=8)
            return train, test
        train, test = loaders()
        for epoch in range(2):
            for x in train:
                net(x).mean().backward()
            for x in test:
                print(net(x))
        """
    )
    assert "    train.sampler.set_epoch(epoch)\n    for x in train:" in after
    assert "test = DataLoader(data, batch_size=8)\n" in after


def test_what_is_saved_under_a_condition_is_saved_under_one_if() -> None:
    after = converted("best = True\nif best:\n    torch.save(net.state_dict(), 'net.pt')\n")

    assert "if best and rank == 0:\n    torch.save(" in after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("if a or b:\n    torch.save(x, 'x')", "if (a or b) and rank == 0:\n    torch.save(x, 'x')"),
        (
            "f = open('a' if a else 'b', 'w')",
            "f = open(('a' if a else 'b') if rank == 0 else os.devnull, 'w')",
        ),
        (
            "loader = DataLoader(data, batch_size=8 + 8, shuffle=True)\nfor x in loader: net(x).backward()",
            "batch_size=(8 + 8) // world_size",
        ),
    ],
)
def test_brackets_hold_together_what_was_one_expression(before: str, after: str) -> None:
    assert after in converted(before)


def test_there_is_no_barrier_in_what_rank_0_runs_while_the_others_wait() -> None:
    after = converted(
        """
        import os
        def prepare(path):
            if not os.path.exists(path):
                torch.save(torch.ones(2), path)
            return torch.load(path)
        if not os.path.exists("rows.pt"):
            prepare("rows.pt")
        """
    )
    prepare, _, rest = after.partition("    return torch.load")
    assert "barrier" not in prepare.partition("def prepare")[2]
    assert rest.count("dist.barrier()") == 2  # the pair around its call


def test_what_takes_download_is_left_to_the_barriers_around_its_calls() -> None:
    after = converted(
        """
        import os
        class Rows(torch.utils.data.Dataset):
            def __init__(self, path, download=False):
                if download and not os.path.exists(path):
                    torch.save(torch.ones(2), path)
                self.rows = torch.load(path)
        rows = Rows("rows.pt", download=True)
        """
    )
    assert "rank 0 goes first\nrows = Rows(" in after
    assert after.count("barrier") == 2


def test_a_model_that_another_function_only_uses_on_a_device_is_moved_at_the_wrap() -> None:
    wrap = "net = nn.DataParallel(nn.Linear(8, 3).cuda())"
    uses = "def test(x):\n    return net(x.cuda())\nnet = nn.Linear(8, 3)\nnet = nn.DataParallel(net)"
    text = TRAINS.format(more="").replace(wrap, uses)

    after = convert_idiomatic(Project(SourceFile(None, text)), Options(style="idiomatic")).after

    assert "net = DDP(net.cuda(), device_ids=[local_rank])" in after
