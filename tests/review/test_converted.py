"""Converted scripts: the check knows their wrappers, says nothing of what convert wrote, and finds what was planted."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from ranks import run_program

from dp2ddp.api import convert
from dp2ddp.cli import main
from dp2ddp.codemod.lift import all_templates
from dp2ddp.codemod.looks.ours import JOINS
from dp2ddp.codemod.rule import code_of
from dp2ddp.review.checking import check
from dp2ddp.review.ddp_script import LOADERS, MEETINGS, WRAPPERS
from dp2ddp.review.files import may_matter
from dp2ddp.runtime.process.server import Server
from tests.living.test_living import EDITS, diffs, edited
from tests.review.finding import found_in

ROOT = Path(__file__).parents[2]
CONVERTED = sorted((ROOT / "examples").glob("*/train_ddp.py"))
OWN_RANKS = [
    path
    for path in sorted((ROOT / "tests" / "corpus").glob("*/*.py"))
    if re.search(r"init_process_group|local_rank", path.read_text(encoding="utf-8"))
    and path.parent.name != "negatives"
]
TRAIN = """
import torch
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(22, 3), torch.randn(22, 2))
loader = DataLoader(data, batch_size=4, shuffle=True)
model = torch.nn.DataParallel(torch.nn.Linear(3, 2).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()
    print("epoch", epoch, "loss", loss.item())
    torch.save(model.state_dict(), "last.pt")
"""
TWICE = TRAIN.replace("loss.backward()", "loss.backward(retain_graph=True)\n        loss.backward()")
SCRIPTS = {"WholeBatchDDP": TRAIN, "WholeBatchParallel": TWICE}
ONE = "import torch.distributed as dist\nif dist.get_rank() == 0:\n    "
END = r"\Z"
SAMPLER = "sampler=torch.utils.data.DistributedSampler(data)"


@pytest.fixture(scope="module", params=SCRIPTS)
def converted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("converted") / "train.py"
    path.write_text(SCRIPTS[request.param])
    after = convert(path).after
    assert request.param in after
    return after


def replaced(text: str, pattern: str, new: str) -> str:
    changed, count = re.subn(pattern, new, text)
    assert count, pattern
    return changed


@pytest.mark.parametrize("path", CONVERTED, ids=lambda path: path.parent.name)
def test_nothing_is_said_of_a_converted_example(path: Path) -> None:
    result = check([str(path), str(path.with_name("ddp_helpers.py"))])

    assert [(problem.place, problem.code) for problem in result.problems] == []
    assert may_matter(str(path)), "it is read, and not just passed over"


class TestOwnersEdits:
    """docs/living_with_it.md: its edits train the same (tests/living), and what it warns of does not."""

    CIFAR = (ROOT / "examples" / "cifar_bn" / "train_ddp.py").read_text(encoding="utf-8")

    @pytest.mark.parametrize("heading", EDITS)
    def test_nothing_is_said_of_a_right_one(self, heading: str) -> None:
        text = self.CIFAR
        for diff in diffs(heading):
            text = edited(text, diff)

        assert text != self.CIFAR
        assert found_in(text) == set()

    @pytest.mark.parametrize("count", [1, 2, 3])
    def test_nothing_is_said_while_helpers_are_taken_out(self, count: int) -> None:
        steps = diffs("Taking the helpers out by hand")
        text = self.CIFAR
        for diff in steps[:count] if count < 3 else steps[2:3]:  # the third one starts from the beginning
            text = edited(text, diff)

        assert found_in(text) == set()

    @pytest.mark.parametrize(
        ("made", "given", "is_found"),
        [
            pytest.param("", "DistributedSampler(extraset)", True, id="in the call"),
            pytest.param("sampler = DistributedSampler(extraset)\n", "sampler", True, id="a line above"),
            pytest.param(
                "sampler = DistributedSampler(extraset)\nif args.lr:\n    sampler = None\n",
                "sampler",
                False,
                id="taken away",
            ),
            pytest.param(
                "sampler = None\nif args.lr:\n    sampler = DistributedSampler(extraset)\n",
                "sampler",
                False,
                id="in some runs",
            ),
            pytest.param("", "DistributedSampler(extraset) if args.lr else None", False, id="or None"),
        ],
    )
    def test_a_distributed_sampler_is_found(self, made: str, given: str, is_found: bool) -> None:
        text = edited(self.CIFAR, diffs("A second loader")[0])
        line = "extraloader = Rank0Loader(extraset, batch_size=20, shuffle=True"
        sampled = f"{made}extraloader = Rank0Loader(extraset, batch_size=20, sampler={given}"
        text = replaced(text, re.escape(line), sampled)

        found = found_in(f"from torch.utils.data import DistributedSampler\n{text}")

        assert ("DDP633" in found) == is_found


@pytest.mark.parametrize("path", OWN_RANKS, ids=lambda path: path.stem)
def test_nothing_new_is_said_of_a_script_that_could_start_ranks_itself(path: Path) -> None:
    """That way of its own is not taken by what convert writes; the corpus has nearly every form of it."""
    assert found_in(convert(path).after) <= found_in(path.read_text(encoding="utf-8"))


REFUSED = {  # by the wrapper: what a round of the loop does, or what comes behind the wrap
    "two forwards": "loss = (net(x) - net(x + 1)).sum(); loss.backward()",
    "two backwards": "loss = net(x).sum(); loss.backward(retain_graph=True); (2 * loss).backward()",
    "second derivatives": "net(x).sum().backward(create_graph=True)",
    "frozen": "for p in net.module.parameters(): p.requires_grad = False",
    "a frozen layer": "net.module.requires_grad_(False); net(x)",
    "a hook on a layer": "net.module.register_full_backward_hook(print); net(x)",
    "a hook on parameters": "for p in net.parameters(): p.register_hook(print)",
    "a copy": "copy.deepcopy(net)",
    "saved as a whole": 'torch.save({"net": net}, "net.pt")',
}
ALLOWED = {
    "a second forward without gradients": "with torch.no_grad():\n    net(x)\nnet(x).sum().backward()",
    "a hook on an output": "net(x).register_hook(print)",
    "frozen, and trained again": "net.requires_grad_(False); net.requires_grad_(True)",
    "the weights": "copy.deepcopy(net.state_dict()); copy.deepcopy(net.module)",
    "what a function makes of it": 'torch.save({"net": weights_of(net)}, "net.pt")',
    "another model": "for p in teacher.parameters(): p.requires_grad = False",
}


class TestWhatTheWrapperRefuses:
    @pytest.mark.torchrun
    def test_the_wrapper_does_refuse_it_and_takes_the_rest(self, tmp_path: Path, server: Server) -> None:
        """All of them on two ranks, each with a wrapper of its own; the next forward may be what is refused."""
        (tmp_path / "train.py").write_text(
            "import torch\nnet = torch.nn.DataParallel(torch.nn.Linear(2, 2))\n"
            "for x in []:\n    net.zero_grad()\n    net(x).sum().backward()\n"
        )
        assert CliRunner().invoke(main, ["convert", str(tmp_path / "train.py")]).exit_code == 0
        (tmp_path / "tries.py").write_text(TRIES.format(tries=[*REFUSED.values(), *ALLOWED.values()]))
        result = run_program(server, tmp_path, "tries.py", ranks=2)
        assert result.returncode == 0, result.stderr
        refused = ["WholeBatchParallel" in line for line in result.stdout.splitlines()]
        assert refused == [True] * len(REFUSED) + [False] * len(ALLOWED), result.stdout


TRIES = r"""
import contextlib, copy, io, torch
from ddp_helpers import WholeBatchDDP, init_distributed
init_distributed()
x = torch.ones(4, 2)
for each in {tries}:
    net, teacher, weights_of = WholeBatchDDP(torch.nn.Linear(2, 2)), torch.nn.Linear(2, 2), torch.nn.Module.state_dict
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(each.replace("; ", "\n"))
            net(x).sum().backward()
        print("took it")
    except Exception as error:
        print(str(error).replace("\n", " "))
"""


PLANTED = {  # what in a converted script is replaced, by what, and what is found then
    "nothing": (END, "", set()),
    "a save on every rank": (r"save_on_rank\w+\(", "torch.save(", {"DDP604"}),
    "the wrapper on one rank": (END, f"{ONE}with torch.no_grad():\n        model(x)\n", {"DDP609"}),
    "the model inside on one rank": (END, f"{ONE}with torch.no_grad():\n        model.module(x)\n", set()),
    "a helper that all ranks must call": (
        r"    (save_on_rank\w+\(.*)",
        r"    if torch.distributed.get_rank() == 0:\n        \1",
        {"DDP608"},
    ),
    "weights that one rank loads": (
        r"(?=for epoch)",
        f"{ONE}model.load_state_dict(torch.load('last.pt'))\n",
        {"DDP617"},
    ),
    "weights that one rank loads at the end": (
        END,
        f"{ONE}model.load_state_dict(torch.load('last.pt'))\n",
        set(),
    ),
    "a tracker on every rank": (END, "import wandb\nwandb.init(project='cifar')\n", {"DDP606"}),
    "a rank in a variable of torchrun": (
        END,
        "import os\nrank = int(os.environ['RANK'])\nif rank == 0:\n    model(x)\n",
        {"DDP609"},
    ),
}


@pytest.mark.parametrize(("pattern", "new", "codes"), PLANTED.values(), ids=PLANTED)
def test_a_planted_fault_is_found(converted: str, pattern: str, new: str, codes: set[str]) -> None:
    assert found_in(replaced(converted, pattern, new)) == codes


def test_a_sampler_that_cuts_the_data_before_the_wrapper_does_is_found(converted: str) -> None:
    assert "DDP633" in found_in(replaced(converted, "shuffle=True", SAMPLER))


SMALL = """
    import torch
    import torch.distributed as dist
    import os
    from ddp_helpers import Rank0Loader, WholeBatchDDP, init_distributed, run_on_rank0, save_on_rank0
    init_distributed()
    model = WholeBatchDDP(net)
"""
RIGHT = {
    "a function that rank 0 calls": """
        def save(path):
            torch.save(model.state_dict(), path)
        run_on_rank0(save, "last.pt")
    """,
    "an argument that nobody sets under torchrun": """
        if args.local_rank in (-1, 0):
            save_on_rank0(model.state_dict(), "last.pt")
        if not args.distributed or args.rank == 0:
            model(x)
    """,
    "a group of its own beside": """
        if args.distributed:
            dist.init_process_group("nccl")
        rank = dist.get_rank()
        if rank == 0:
            model(x)
            save_on_rank0(model.state_dict(), "last.pt")
    """,
    "a file of each rank": 'torch.save(model.state_dict(), f"rank{dist.get_rank()}.pt")',
    "a sampler for a pass of each rank's own": """
        loader = torch.utils.data.DataLoader(data, sampler=torch.utils.data.DistributedSampler(data))
        with torch.no_grad():
            for x in loader:
                features = model.module(x)
    """,
    "a maximum": """
        for x in Rank0Loader(data, batch_size=8):
            loss = model(x).mean()
            dist.all_reduce(loss, dist.ReduceOp.MAX)
    """,
    "rows that a rank has cut off for itself": """
        for x in Rank0Loader(data, batch_size=8):
            hits = (net(x[dist.get_rank() :: 2]) > 0).sum()
            dist.all_reduce(hits)
    """,
    "batches that ranks deal out among each other": """
        rank, hits = dist.get_rank(), torch.zeros(1)
        for number, x in enumerate(Rank0Loader(data, batch_size=8)):
            if number % dist.get_world_size() != rank:
                continue
            hits += (net(x) > 0).sum()
        dist.all_reduce(hits)
        for x in Rank0Loader(data, batch_size=8):
            rows = net(x.narrow(0, 4 * rank, 4).cuda())
            dist.all_reduce(rows.sum())
    """,
    "a hook on the wrapper, on another model, on what the hook makes itself": """
        seen = []
        def name(module, given, made):
            names = {}
            names["made"] = made
        model.register_forward_hook(lambda module, given, made: seen.append(made))
        teacher.fc.register_forward_hook(lambda module, given, made: seen.append(made))
        model.module.fc.register_forward_hook(name)
    """,
    "seeds that are alike, and one of a run without ranks": """
        torch.manual_seed(args.seed)
        if args.distributed:
            torch.manual_seed(args.seed + dist.get_rank())
    """,
    "files that are read, or thrown away": """
        text = open("names.txt").read()
        nothing = open(os.devnull, "w")
        name = f"log{os.getpid()}.txt"
        own = open(name, "w")
    """,
    "ranks above 0 do something else": """
        rank = dist.get_rank()
        if rank == 0:
            out = model(x)
        else:
            model(x)
    """,
}


@pytest.mark.parametrize("body", RIGHT.values(), ids=RIGHT)
def test_nothing_is_said_of_right_code_behind_a_wrapper(body: str) -> None:
    assert found_in(code_of(SMALL) + code_of(body)) == set()


def test_a_way_of_its_own_to_start_ranks_stays_as_it_is() -> None:
    """Under torchrun the helpers start the ranks."""
    text = """
        import argparse
        import torch.distributed as dist
        from ddp_helpers import WholeBatchParallel, init_distributed
        parser = argparse.ArgumentParser()
        parser.add_argument("--local_rank", type=int, default=-1)
        init_distributed()
        args = parser.parse_args()
        def main():
            if args.local_rank != -1:
                dist.init_process_group("nccl")
            model = WholeBatchParallel(net)
        if __name__ == "__main__":
            main()
    """

    assert found_in(code_of(text)) == set()


def test_the_names_are_those_of_the_templates() -> None:
    names = {
        node.name
        for text in all_templates().texts.values()
        for node in ast.parse(text).body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
    }
    assert names >= WRAPPERS | MEETINGS | LOADERS | {*JOINS}


def test_every_wrapper_is_known() -> None:
    """What a helper makes of a model: a class of torch's DistributedDataParallel, or of one of ours."""
    bases = {"DistributedDataParallel", "AnyDataParallel"}
    wrappers = {*bases}
    classes = [
        node
        for path in sorted((ROOT / "templates").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    ]
    for _ in range(4):
        wrappers |= {
            node.name
            for node in classes
            for base in node.bases
            if isinstance(base, ast.Name) and base.id in wrappers
        }
    assert wrappers - bases == WRAPPERS
