"""Functions that only write are called once, as a whole; whatever else a function does, its lines are changed."""

from __future__ import annotations

import textwrap

import pytest

from dp2ddp.codemod.convert import Options, convert
from dp2ddp.codemod.helpers import HelperPlace
from tests.codemod.scripts import converted, project_of

HEAD = """
import csv, errno, json, os, shutil, sys
import torch
from torch import nn
import logging
log = logging.getLogger("main")
args = parser.parse_args()
net = nn.DataParallel(nn.Linear(2, 2))
best = net(torch.ones(2, 2)).sum()
def save(state, is_best, name="last.pt"):
    path = os.path.join(args.out, name)
    torch.save(state, path)
    if is_best:
        shutil.copyfile(path, "best.pt")
    #inside
save({"net": net.state_dict()}, True)
#after
"""


def lines_of(inside: str = "pass", after: str = "pass") -> list[str]:
    text = HEAD.replace("#inside", inside.replace("\n", "\n    ")).replace("#after", after)
    return [line.strip() for line in converted(text).after.splitlines()]


HARMLESS = {
    "nothing else": "pass",
    "it prints": "print('saved', path)",
    "it logs": "with open(path + '.json', 'w') as file:\n    json.dump({'name': name}, file)",
    "a table": "with open('log.csv', 'a') as file:\n    rows = csv.writer(file)\n    rows.writerow([name])",
    "it reads first": "with open('log.txt') as file:\n    print(file)",
    "folders in a loop": "for kind in ('a', 'b'):\n    os.makedirs('{}/{}'.format(args.out, kind), exist_ok=True)",
    "errors": "try:\n    os.remove(path)\nexcept OSError as error:\n    if error.errno != errno.ENOENT:\n        raise",
    "it tells its logger": "log.info('saved %s', path)",
    "a program": "os.system('cp ' + path + ' ' + args.copies)",
}
MORE = {
    "it hands something back": "return path",
    "it changes what it was given": "state['done'] = True",
    "it changes what is outside": "global best\nbest = 0",
    "it asks for a model": "torch.save(net.state_dict(), 'all.pt')",
    "it shows a number of all ranks": "print(best)",
    "it writes a number of all ranks": "with open('log.txt', 'a') as file:\n    file.write(str(best.item()))",
    "it tells a tracker": "board.info(path)",
    "it calls what is not known": "report(path)",
    "it calls a function of the script": "shown(path)",
    "it loads": "torch.load(path)",
    "it draws": "print(torch.rand(1))",
    "it asks the clock": "import time\nprint(time.time())",
    "it asks for an attribute of what it is given": "print(state.mean)",
    "it writes to a file that is open on all ranks": "state.write('saved')",
    "it hands on a function that writes": "writers = [shutil.copy]",
    "it is a generator": "yield",
    "it ends the run": "sys.exit()",
    "it counts devices": "print(torch.cuda.device_count())",
    "it keeps something": "save.last = path",
}
CALLED = {
    "as often as it has lines": "save({}, False)",
    "its answer is asked for": "out = save({}, False)",
    "it is handed on": "hooks.append(save)",
}


@pytest.mark.parametrize("name", HARMLESS)
def test_a_function_that_only_writes_is_called_once(name: str) -> None:
    lines = lines_of(HARMLESS[name])

    assert 'run_on_rank0(save, {"net": net.state_dict()}, True)' in lines
    assert {"torch.save(state, path)", 'shutil.copyfile(path, "best.pt")'} <= set(lines)
    assert not any("once(" in line and "run_on_rank0(save, {" not in line for line in lines)


@pytest.mark.parametrize("name", MORE)
def test_a_function_that_does_more_is_changed_inside(name: str) -> None:
    lines = lines_of(MORE[name])

    assert 'save({"net": net.state_dict()}, True)' in lines
    assert "torch.save(state, path)" not in lines


@pytest.mark.parametrize("name", CALLED)
def test_a_function_that_is_called_otherwise_is_changed_inside(name: str) -> None:
    lines = lines_of(after=CALLED[name])

    assert 'save({"net": net.state_dict()}, True)' in lines
    assert "torch.save(state, path)" not in lines


def test_a_function_that_a_forward_calls_is_a_hazard_as_before() -> None:
    forward = (
        "class Net(nn.Module):\n    def forward(self, x):\n        save({}, False)\nnn.DataParallel(Net())"
    )

    found = converted(HEAD.replace("#after", forward))

    assert {hazard.code for hazard in found.hazards} == {"DDP502", "DDP503"}
    assert 'save({"net": net.state_dict()}, True)' in found.after


def test_a_method_that_makes_folders_of_its_object() -> None:
    script = """
    import os, torch
    net = torch.nn.DataParallel(torch.nn.Linear(2, 2))
    class Paths:
        def __init__(self):
            self.logs, self.nets = "logs", "nets"
            self.make()
        def make(self):
            os.makedirs(self.logs)
            os.makedirs(self.nets)
    {more}
    Paths()
    """
    other = "class Other:\n        def make(self):\n            return 1"

    alone, with_other = (converted(script.format(more=more)).after for more in ("", other))

    assert "run_on_rank0(self.make)" in alone
    assert "        os.makedirs(self.logs)" in alone
    assert "run_on_rank0(os.makedirs, self.logs)" in with_other


def test_a_folder_that_may_be_there_is_made_where_its_errors_are_caught() -> None:
    """Then rank 0's error is caught by rank 0, and the smaller helpers do."""
    script = """
    import errno, os, torch
    net = torch.nn.DataParallel(torch.nn.Linear(2, 2))
    def mkdir_p(path):
        try:
            os.makedirs(path)
        except OSError as exc:
            if exc.errno == errno.EEXIST and os.path.isdir(path):
                pass
            else:
                raise
    mkdir_p("out")
    """
    made = converted(script)

    assert "run_on_rank0(mkdir_p, 'out')" in made.after.replace('"', "'")
    assert made.strategy.helpers.value == "plain"


def test_the_function_stands_in_another_file() -> None:
    utils = textwrap.dedent("""
    import os
    def make_folders():
        os.makedirs("logs")
        os.makedirs("nets")
    """)
    script = "import torch, utils\nnet = torch.nn.DataParallel(torch.nn.Linear(2, 2))\nutils.make_folders()\n"

    made = convert(project_of(script, utils=utils), Options(helpers=HelperPlace.PACKAGE))

    assert "run_on_rank0(utils.make_folders)" in made.after
    assert all(
        "once" not in text.decode() for path, text in made.files_beside.items() if path.stem == "utils"
    )
