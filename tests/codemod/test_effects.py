"""What a script does to the world outside: once, by rank 0's answer, or a hazard (files: test_sinks.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.codemod.programs import WRAP, converted
from tests.diffs import Script, cases


def changed(text: str) -> list[str]:
    """The lines of a script that the conversion writes anew, and its hazards."""
    conversion = converted(WRAP + text)
    if conversion.hazards:
        return [f"{each.code}" for each in conversion.hazards]
    before = set(text.splitlines())
    new = [line for line in conversion.after.splitlines() if line.strip() and line not in before]
    ours = ("from ddp_helpers", "import torch", "init_distributed", "net = ")
    return [line.strip() for line in new if not line.strip().startswith(ours)]


LEFT_ALONE = {
    "a file that is read": "with open('a.txt') as file, open(path, 'rb') as other: text = file.read()",
    "an image that is opened": "from PIL import Image\nimage = Image.open(path)",
    "an image that is opened, of a module": "import PIL.Image\nimage = PIL.Image.open(path).convert('RGB')",
    "a database that is read": "import lmdb\nenv = lmdb.open(path, readonly=True, lock=False)",
    "a database in which nothing is put": "import lmdb\nenv = lmdb.open(path)\nwith env.begin() as t: x = t.get(k)",
    "a database opened with options": "import lmdb\nwith lmdb.open(p, **o).begin(write=False) as t: x = t.get(k)",
    "a table that is read": "import sqlite3\ndb = sqlite3.connect('file:a.db?mode=ro', uri=True)\nx = db.execute(q)",
    "a terminal": "import os\nrows, columns = os.popen('stty size', 'r').read().split()",
    "a table in memory": "import sqlite3\nbase = sqlite3.connect(':memory:')",
    "a table that is asked": "import sqlite3\nrows = sqlite3.connect(path).execute('select a from b').fetchall()",
    "a map that is read": "import numpy as np\na = np.memmap(path, dtype='uint8', mode='r')",
    "a copy of a map": "import numpy as np\na = np.memmap(path, 'uint8', 'c')\na[0] = 1",
    "an array that is loaded": "import numpy as np\na = np.load(path, mmap_mode='r')\nb = np.load(path)",
    "a store that is read": "import h5py\nwith h5py.File(path) as f, h5py.File(path, mode='r') as g: x = f['x'][:]",
    "an archive that is read": "import zipfile\nwith zipfile.ZipFile(path) as z: z.open(name).read()",
    "what a folder holds": "import os\nnames = sorted(os.listdir(path))",
    "lines on the screen": "import logging, sys\nlogging.basicConfig(level='INFO')\nprint('a', file=sys.stderr)",
    "a log on the screen": "import sys\nfrom loguru import logger\nlogger.add(sys.stderr, level='INFO')",
    "a bar": "from tqdm import tqdm\nbar = tqdm([1, 2])\nbar.set_postfix(loss=1)",
    "text for a file that is open": "import csv, json\njson.dump({}, file)\ncsv.writer(file).writerow([1])",
    "a table of memory": "import pandas as pd\nframe = pd.DataFrame(x).rename(columns=y)\nframe = frame.replace(1, 2)",
    "a table that is changed in place": "frame.replace('?', 0, inplace=True)\nframe.rename(x, inplace=True)",
    "a text of a table": "text = frame.to_json(orient='records')\nhtml = frame.to_html()",
    "a name for a dimension": "x = torch.ones(2, names=('a',)).rename('b')",
    "a file that nobody sees": "import tempfile\nwith tempfile.NamedTemporaryFile() as file: file.write(b'a')",
    "a file without a name": "import tempfile\nwith tempfile.TemporaryFile() as file: file.write(b'a')",
    "a file that is nowhere": "import os\nfile = open(os.devnull, 'w')",
    "the model's own method": "class Net:\n    def save(self, path): pass\nnet.module.save('a.pt')",
    "the script's own method": "class Plot:\n    def save(self, name): pass\nplot = Plot()\nplot.save('a.png')",
    "numbers with a seed": "import random\nimport numpy as np\nrandom.seed(0)\nrng = np.random.default_rng(1)",
    "a generator that torch seeds": "g = torch.Generator()\ng.manual_seed(3)",
    "a seed that a worker has": "import numpy as np\ndef start(worker_id):\n    np.random.seed(worker_id)",
    "a variable of the environment": "import os\nos.environ['A'] = '1'",
    "a process id that is shown": "import os\nprint(f'{os.getpid()}: begins')",
    "memory that is shown": "print(torch.cuda.max_memory_allocated() / 1e6)",
}


HANDED = """
import inspect, queue, threading, time, uuid
from dataclasses import dataclass
from typing import Optional
import numpy as np
from torch.utils.tensorboard import SummaryWriter
Writer = SummaryWriter
"""


@pytest.mark.parametrize(
    "line",
    [
        "type(writer) in (SummaryWriter, dict)",
        "{SummaryWriter: 1}.get(type(writer))",
        "isinstance(writer, (SummaryWriter, dict))",
        "Log = Optional[SummaryWriter]",
        "Log = SummaryWriter | None",
        "names = inspect.signature(SummaryWriter).parameters",
        "print(SummaryWriter, time.time)",
        "clock is time.time",
        "def log(writer: SummaryWriter) -> Writer: ...",
    ],
)
def test_a_thing_that_is_only_asked_for_stays(line: str) -> None:
    text = f"{HANDED}{WRAP}{line}\n"
    assert line in converted(text).after


@pytest.mark.parametrize(
    "line",
    [
        "make(SummaryWriter)",
        "make({'tb': Writer})",
        "make([Writer][0])",
        "make(Writer if args.log else None)",
        "{1: SummaryWriter}.get(1)('runs')",
        "make(clock=time.time)",
        "make(default_factory=uuid.uuid4)",
        "make(rngs=(np.random.default_rng,))",
        "for clock in (time.time, time.monotonic): clock()",
        "kept = clocks.get(name, time.time)",
        "began = getattr(time, name)()",
    ],
)
def test_a_thing_that_is_handed_on_is_rank_0s(line: str) -> None:
    after = converted(f"{HANDED}{WRAP}{line}\n").after
    assert line not in after
    assert "(lambda *args, **kwargs: " in after


def test_what_a_class_keeps_is_no_method_of_its_objects() -> None:
    after = converted(f"{HANDED}{WRAP}class Timer:\n    now = time.time\n").after
    assert "    now = staticmethod(lambda *args, **kwargs: ask_rank0(time.time, *args, **kwargs))" in after


@pytest.mark.parametrize("text", LEFT_ALONE.values(), ids=LEFT_ALONE.keys())
def test_what_ranks_can_do_alike_stays_as_it_is(text: str) -> None:
    assert changed(text) == []


DONE_ONCE = {
    "open(path, mode)\n": ["open_on_rank0(path, mode)"],
    "open('a.txt', 'a')\n": ["open_on_rank0('a.txt', 'a')"],
    "file = folder.open('w')\n": ["file = open_path_on_rank0(folder.open, 'w')"],
    "file = folder.open(mode)\n": ["file = open_path_on_rank0(folder.open, mode)"],
    "import gzip\nfile = gzip.open(path, 'wt')\n": ["file = open_by_on_rank0(gzip.open, path, 'wt')"],
    "folder.write_text('a')\n": ["write_on_rank0(folder.write_text, 'a')"],
    "import shutil\nplace = shutil.copy('a', 'b')\n": ["place = ask_rank0(shutil.copy, 'a', 'b')"],
    "import cv2\nvideo = cv2.VideoWriter(path, code, 25, size)\nvideo.write(frame)\n": [
        "video = make_on_rank0(cv2.VideoWriter, path, code, 25, size)"
    ],
    "import cv2\nfine = cv2.imwrite(path, image)\n": ["fine = ask_rank0(cv2.imwrite, path, image)"],
    "import loguru\nloguru.logger.add('a.log')\n": ["make_on_rank0(loguru.logger.add, 'a.log')"],
    "import subprocess\nsubprocess.run(['make'])\n": ["ask_rank0(subprocess.run, ['make'])"],
    "import tempfile\nplace = tempfile.mkdtemp()\n": ["place = ask_rank0(tempfile.mkdtemp)"],
    "getattr(frame, f'to_{kind}')(path)\n": ["write_on_rank0(getattr(frame, f'to_{kind}'), path)"],
    "getattr(image, 'save')(path)\n": ["write_on_rank0(getattr(image, 'save'), path)"],
    "name = input()\n": ["name = ask_rank0(input)"],
    "import uuid\nname = uuid.uuid4().hex\n": ["name = ask_rank0(uuid.uuid4).hex"],
    "import os\nplace = f'run-{os.getpid()}'\nos.mkdir(place)\n": [
        "place = f'run-{ask_rank0(os.getpid)}'",
        "run_on_rank0(os.mkdir, place)",
    ],
    "import numpy as np\nrng = np.random.default_rng()\n": ["rng = ask_rank0(np.random.default_rng)"],
    "import random\nr = random.Random(None)\n": ["r = ask_rank0(random.Random, None)"],
    "import random\nrandom.seed(args.seed)\n": ["share_streams(random.seed, args.seed)"],
    "import sqlite3\nbase = sqlite3.connect(path)\nbase.execute('insert into a values (1)')\nbase.commit()\n": [
        "base = make_on_rank0(sqlite3.connect, path)"
    ],
    "import importlib\nw = importlib.import_module(name).SummaryWriter('a')\n": [
        "refuse_own_files()",  # the module was not read
        "w = make_on_rank0(importlib.import_module(name).SummaryWriter, 'a')",
    ],
    "import wget\nplace = wget.download(url)\n": ["place = ask_rank0(wget.download, url)"],
    "import time\nname = time.strftime('%H%M')\nrun(name)\n": ["name = ask_rank0(time.strftime, '%H%M')"],
}  # fmt: skip


@pytest.mark.parametrize(("text", "lines"), DONE_ONCE.items())
def test_what_one_run_does_once_rank_0_does(text: str, lines: list[str]) -> None:
    assert changed(text) == lines


HAZARDS = {
    "import tempfile\nwith tempfile.NamedTemporaryFile() as f:\n    torch.save(x, f.name)\n": "DDP501",
    "import argparse\nparser.add_argument('--out', type=argparse.FileType('w'))\n": "DDP501",
    "import h5py\nwith h5py.File(path, 'a') as f:\n    x = f['x']['y']\n": "DDP501",
    "import sqlite3\ndb = sqlite3.connect(path)\ndb.commit()\nbest = db.execute(q).fetchone()[0]\n": "DDP501",
    "import numpy as np\na = np.memmap(path, 'f4', 'w+', shape=(3,))\na[0] = 1\nout = net(a)\n": "DDP501",
    "import numpy as np\na = np.load(path, mmap_mode='r+')\na += 1\n": "DDP501",
    "import os, tempfile\nhandle, path = tempfile.mkstemp()\nos.write(handle, b'a')\n": "DDP501",
    "import nobody\nthing = nobody.make()\nthing.save()\n": "DDP503",
    "import random\nr = random.SystemRandom()\n": "DDP302",
    "import wandb\nwandb.agent('a', train)\n": "DDP504",
    "import sqlite3\nreaders = {'db': sqlite3.connect, 'npy': np.load}\n": "DDP501",
    "import io\nclass File(io.FileIO):\n    pass\nfile = File('a', 'w')\n": "DDP501",
}


@pytest.mark.parametrize(("text", "code"), HAZARDS.items())
def test_what_nobody_can_do_for_all_is_a_hazard(text: str, code: str) -> None:
    assert changed(text) == [code]


@pytest.mark.parametrize(
    "text",
    [
        "wandb = {}\nwandb.log(x)",
        "wandb = {}\nprint(wandb.config.lr)",
        "log = {}.log\nlog(x)",
        "run = {}.init()\nprint(run.id)",
        "self.wandb = {}\nprint(self.wandb.run.id)",
    ],
)
@pytest.mark.parametrize(
    "made",
    ["importlib.import_module('wandb')", "importlib.import_module(name='mlflow')", "__import__('wandb')"],
)
def test_a_tracker_that_a_call_imports_is_rank_0s(text: str, made: str) -> None:
    held = text.format(f"held_if_it_reports({made})")
    found = converted(f"import importlib\n{WRAP}{text.format(made)}\n")
    assert held in found.after
    assert not found.hazards
    above = converted(f"import importlib\n{text.format(made)}\n{WRAP}").after
    assert above.index("from ddp_helpers") < above.index(held)


# --- clocks

SHOWN, DECIDE = (cases(Path(__file__).with_name("clocks") / f"{name}.diff") for name in ("shown", "decides"))


def clocks(text: str, **modules: str) -> int:
    """How many clocks are rank 0's."""
    conversion = converted(text, {name: f"import time\n{one}" for name, one in modules.items()})
    return sum(each.after.count("ask_rank0(time.") for each in (conversion.entry, *conversion.modules))


@pytest.mark.parametrize("script", SHOWN, ids=lambda script: script.name)
def test_a_clock_that_is_shown_is_each_ranks_own(script: Script) -> None:
    """But for those of which the case says why each of them is taken for one that decides."""
    assert bool(clocks(script.text)) == ("though" in script.said)


@pytest.mark.parametrize("script", DECIDE, ids=lambda script: script.name)
def test_a_clock_that_decides_is_rank_0s(script: Script) -> None:
    assert clocks(script.text) == script.text.count("time.time()")


METER = """
class Meter:
    def __init__(self):
        self.sum = self.count = 0
    def update(self, value):
        self.sum += value
        self.count += 1
        self.avg = self.sum / self.count
def show(meter):
    print(meter.avg)
"""


def test_a_meter_of_another_file() -> None:
    text = (
        f"import time\n{WRAP}from util import Meter, show\nmeter = Meter()\nt = time.time()\n"
        "meter.update(time.time() - t)\nshow(meter)\n"
    )
    assert clocks(text, util=METER) == 0
    assert clocks(text, util=METER.replace("print(meter.avg)", "stop(meter.avg > 5)")) == 2


def test_a_name_of_another_file() -> None:
    text = f"from util import begin as since\n{WRAP}if since > 5:\n    quit()\n"
    assert clocks(text, util="begin = time.time()\n") == 1
    assert clocks(f"import util\n{WRAP}print(util.begin)\n", util="begin = time.time()\n") == 0


REACHED = cases(Path(__file__).parent / "reached" / "cases.diff")


@pytest.mark.parametrize("script", REACHED, ids=lambda script: script.name)
def test_where_a_forward_may_write_a_file_every_rank_runs_all_replicas(script: Script) -> None:
    found = converted(script.body)
    assert not found.hazards
    assert "(logging.FileHandler, path)" in found.after or "_on_rank0" in found.after
    if "hazard" in script.said:
        assert "WholeBatchInTurns(" in found.after


@pytest.mark.parametrize(
    "own", ["def init_distributed(): pass", "from comm import init_distributed", "def join_ranks(): pass"]
)
def test_a_function_of_the_scripts_own_is_no_start_of_ours(own: str) -> None:
    name = "join_ranks" if "join" in own else "init_distributed"
    script = f"import torch\n{own}\n{name}()\nnet = torch.nn.DataParallel(net)\n"
    assert "DDP101" in [each.code for each in converted(script).edits]


def test_the_start_of_an_earlier_conversion_is_known_by_another_name() -> None:
    script = "from ddp_helpers import init_distributed as start\nstart()\nnet = torch.nn.DataParallel(net)\n"
    assert "DDP101" not in [each.code for each in converted("import torch\n" + script).edits]
