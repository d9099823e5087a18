"""Where ranks join, how many there are, what is asked of helpers, comments and reports: beyond single rules."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from dp2ddp.codemod.helpers import HelperPlace
from dp2ddp.codemod.plans.acceptance import accept_option
from dp2ddp.errors import ConversionError, OptionError
from dp2ddp.report.conversion_report import conversion_text
from dp2ddp.review.data_parallel import check_project
from dp2ddp.review.problems import Level
from dp2ddp.source.projects import read_project
from tests.codemod.programs import WRAP, converted, said


@pytest.mark.parametrize(
    ("text", "world"),
    [
        ("net = torch.nn.DataParallel(n, [0, 1, 2])", 3),
        ("net = torch.nn.DataParallel(n, device_ids=range(4))", 4),
        ("net = torch.nn.DataParallel(n, device_ids=list(range(4)))", 4),
        ("ids = [0, 1]\nnet = torch.nn.DataParallel(n, device_ids=ids)", 2),
        ("net = torch.nn.DataParallel(n, device_ids=[a, b])", 2),
        ("net = torch.nn.DataParallel(n, device_ids=[a, *b])", None),
        ("net = torch.nn.DataParallel(n)", None),
    ],
)
def test_the_launch_line_has_as_many_ranks_as_devices(text: str, world: int | None) -> None:
    conversion = converted(f"import torch\n{text}\n")
    assert conversion.world == world
    assert f"--nproc-per-node {world or 'gpu'} " in conversion.launch_of()


def test_device_ids_that_cannot_be_read_are_noted() -> None:
    assert said(converted("import torch\nnet = torch.nn.DataParallel(n, device_ids=args.gpus)\n")) == [
        "note DDP101:2"
    ]
    all_of_them = "ids = range(torch.cuda.device_count())\nnet = torch.nn.DataParallel(n, ids)\n"
    assert said(converted(f"import torch\n{all_of_them}")) == []


@pytest.mark.parametrize("ids", ["[0]", "[args.gpu]", "range(1)"])
def test_a_wrap_for_one_device_is_a_plain_call(ids: str) -> None:
    found = converted(f"import torch\nnet = torch.nn.DataParallel(n, {ids})\n")
    assert said(found) == ["note DDP201:2"]
    assert not found.changed
    assert said(converted(f"{WRAP}other = torch.nn.DataParallel(n, {ids})\n")) == ["hazard DDP201:3"]


@pytest.mark.parametrize(
    ("line", "differs"),
    [
        ("for name in set(names): pass", True),
        ("classes = list({f(x) for x in xs})", True),
        ("kept = set(names)\nfor name in kept: pass", True),
        ("self.kept = set(names)\nprint(other.kept)", True),
        ("index = hash(name) % 7", True),
        ("tables = map(set, names)", True),
        ("best = max(set(votes), key=votes.count)", True),
        ("best = sorted((fitness(x), x) for x in set(names))", True),
        ("scores = {fitness(x) for x in set(names)}", True),
        ("short = sorted(x.lower() for x in set(names) if len(x) < 4)", True),
        ("classes = sorted(set(names))", False),
        ("count = len({f(x) for x in xs})", False),
        ("kept = set(names)\nok = x in kept", False),
        ("kept = set()\nkept.add(x)\nif x in kept: pass", False),
        ("kept, hits = set(), []\nkept.add(x)\nif x in kept: hits.append(x)", False),
        ("hits, kept = [], set()\nfor x in kept: hits.append(x)", True),
        ("first, second = set(names)\nif x in first: pass", True),
        ("kept, hits = also = set(), []\nkept.add(x)", True),
        ("one = {1, 2}\nfor x in one: pass", False),
        ('log.warning({f"no metric {name}"})', False),
        ("isinstance(x, set)", False),
        ("def never(names):\n    return list(set(names))", False),
    ],
)
def test_orders_of_sets_ask_for_a_hash_seed(line: str, differs: bool) -> None:
    conversion = converted(f"{WRAP}{line}\n")
    assert conversion.launch_of().startswith("PYTHONHASHSEED=0 torchrun") is differs
    assert ("have_one_hash_seed()" in conversion.after) is differs


def test_ranks_join_behind_visible_devices_in_the_function_that_starts() -> None:
    found = converted(
        """
        import argparse, os, torch
        def main(args):
            state = dict(vars(args))
            os.environ["CUDA_VISIBLE_DEVICES"] = args.gpu
            print(torch.cuda.device_count())
            net = torch.nn.DataParallel(Net())
        if __name__ == "__main__":
            args = argparse.ArgumentParser().parse_args()
            main(args)
        """
    )
    assert "= args.gpu\n    init_distributed()\n    print(" in found.after
    assert said(found) == ["note DDP101:5"]  # how many?


@pytest.mark.parametrize("before", ["print(1)", "torch.manual_seed(1)", "os.mkdir('a')", "helper()"])
def test_visible_devices_that_come_too_late_go_into_the_launch_line(before: str) -> None:
    text = f"""
    import os, torch
    def helper():
        print(1)
    {before}
    os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"
    net = torch.nn.DataParallel(Net())
    """
    found = converted(text)
    assert said(found) == ["note DDP101:6"]
    assert found.launch_of().startswith("CUDA_VISIBLE_DEVICES=0,1 torchrun --standalone --nproc-per-node 2 ")
    assert found.after.index("init_distributed()") < found.after.index("CUDA_VISIBLE")


def test_a_script_that_starts_itself_anew_is_a_hazard() -> None:
    text = """
        import os, sys
        import torch
        if os.environ.get("PYTHONHASHSEED") != "0":
            os.execv(sys.executable, [sys.executable, *sys.argv])
        net = torch.nn.DataParallel(Net())
        """
    assert said(converted(text)) == ["hazard DDP906:5"]


def test_helpers_do_not_hide_names_of_the_script() -> None:
    after = converted(f"{WRAP}count_ranks = torch.cuda.device_count()\n").after
    assert "import WholeBatchParallel, count_ranks as count_ranks_, init_distributed\n" in after
    assert after.endswith("count_ranks = count_ranks_()\n")


@pytest.mark.parametrize("place", [HelperPlace.BESIDE, HelperPlace.IN_SCRIPT])
def test_a_converted_script_is_converted_no_further_but_for_what_is_new(place: HelperPlace) -> None:
    first = converted(f"{WRAP}torch.save(net, 'a')\n", helpers=place).after
    assert not converted(first, helpers=place).changed
    second = converted(f"{first}other = torch.nn.DataParallel(Net())\n", helpers=place).after
    assert second == f"{first}other = WholeBatchParallel(Net())\n"


def test_rules_are_chosen_by_their_codes() -> None:
    text = f"{WRAP}torch.save(net, 'a')\nx = x.cuda(0)\n"
    assert "torch.save(net, 'a')" in converted(text, ignore=("DDP501",)).after
    chosen = converted(text, select=("DDP1", "DDP2")).after
    assert "torch.save(net, 'a')" in chosen
    assert "x = x.cuda()" in chosen
    with pytest.raises(OptionError):
        converted(text, select=("DDP9999",))


def test_a_module_that_an_older_version_converted_is_refused() -> None:
    models = "from ddp_helpers import GraphDDP\ndef build(net):\n    return GraphDDP(net)\n"
    with pytest.raises(ConversionError, match=r"models\.py was converted with another script.*GraphDDP"):
        converted(f"import models\n{WRAP}", {"models": models})
    own = "from ddp_helpers import save_on_rank0\n"
    assert converted(f"import models\n{WRAP}", {"models": own}).changed


def test_comments_answer_hazards_and_are_noted_where_there_is_none() -> None:
    comment = "# dp2ddp: accept[DDP906] on one rank only"
    found = converted(f"{WRAP}breakpoint()  {comment}\n")
    assert (len(found.accepted), said(found)) == (1, [])
    assert said(converted(f"{WRAP}print()  {comment}\n")) == ["note DDP906:3"]


def test_a_hazard_of_another_file_is_answered_by_its_name() -> None:
    forks = "import os\ndef fork():\n    os.fork()\n"
    option = accept_option("DDP906:forks.py:3")
    found = converted(f"import forks\n{WRAP}forks.fork()\n", {"forks": forks}, accept=(option,))
    assert (len(found.accepted), said(found)) == (1, [])


def test_an_edit_in_a_long_format_string_is_made_or_refused_but_never_wrong() -> None:
    found = converted(f'{WRAP}print(f"""\n  {{x}} on\n  {{torch.cuda.device_count()}} GPUs\n""")\n')
    assert bool(found.hazards) != ("{count_ranks()} GPUs" in found.after)
    ast.parse(found.after)


def test_ranks_wait_in_a_forward_that_all_of_them_run_for_every_replica() -> None:
    text = """
    import torch
    def dump(x):
        torch.save(x, "x.pt")
    class Net(torch.nn.Module):
        def forward(self, x):
            dump(x)
            return x
    net = torch.nn.DataParallel(Net())
    """
    found = converted(text)
    assert not found.hazards
    assert "WholeBatchInTurns(Net())" in found.after
    outside = text.replace("dump(x)\n            return", "return").replace("Net())", "Net())\n    dump(1)")
    assert "WholeBatchInTurns" not in converted(outside).after


def test_a_report_says_what_was_changed_where() -> None:
    text = conversion_text(converted(f"{WRAP}torch.save(net, 'a')\n"), "train_ddp.py")
    assert "\n  line 3:  rank 0 saves, once for all ranks (DDP501)\n" in text
    assert "\n  helpers: ddp_helpers.py beside it, " in text


def test_check_says_what_stands_in_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"{WRAP}breakpoint()\n")
    answer = check_project(str(script), read_project(str(script)))
    assert [(each.code, each.line, each.level) for each in answer.problems] == [
        ("DDP906", 3, Level.ERROR),
        ("DDP201", 2, Level.NOTE),
    ]
    assert answer.problems[1].advice.endswith("2 edits in 1 file, 1 hazard to answer")
    assert answer.planned == [str(script)]
