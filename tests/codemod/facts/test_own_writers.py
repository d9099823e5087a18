"""Classes of a project that are derived from what writes: rank 0 has their objects, or there is a hazard."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dp2ddp.codemod.convert import Conversion, Options, convert
from dp2ddp.codemod.helpers import HelperPlace
from tests.codemod.scripts import converted, project_of
from tests.ranks import FORKED

NET = "import torch\nnet = torch.nn.DataParallel(torch.nn.Linear(3, 3))\n"

LOGS = '''
import logging
from logging import handlers
Base = logging.FileHandler

class Lines(Base):
    """A base that has a second name."""

class Shouted(Lines):
    """A base of a base, in another file than the script."""
    def __init__(self, path):
        import os
        os.makedirs(os.path.dirname(path), exist_ok=True)
        super().__init__(path, "a")
    def emit(self, record):
        self.stream.write(record.getMessage().upper() + "\\n")

class Turned(handlers.RotatingFileHandler):
    """Files that are renamed when they are full."""
    def __init__(self, path):
        handlers.RotatingFileHandler.__init__(self, path, maxBytes=100, backupCount=9)
'''

SCRIPT = """
import gzip, io, logging, os, sys
import torch
from torch import nn
from torch.utils.tensorboard import SummaryWriter
import logs

class Quiet(logs.Lines):
    pass

class Raw(io.FileIO):
    def put(self, text):
        self.write(text.encode())

class Packed(gzip.GzipFile):
    def __init__(self, path):
        super().__init__(path, "wb", mtime=0)

class Writer(SummaryWriter):
    def add_step(self, step, loss):
        self.add_scalar("loss", loss, step)
        with open("steps.txt", "a") as file:
            file.write(f"{step} {loss:.4f}\\n")

torch.manual_seed(0)
net = nn.DataParallel(nn.Linear(3, 2))
optimizer = torch.optim.SGD(net.parameters(), 0.1)
Shout = logs.Shouted
logger = logging.getLogger("train")
logger.setLevel("INFO")
logger.propagate = False
logger.addHandler(Quiet("quiet.log"))
logger.addHandler(Shout("folder/shouted.log"))
logger.addHandler(logs.Turned("turned.log"))
logger.addHandler(logs.Lines("lines.log", mode="a"))
writer = Writer("board")
raw = Raw("raw.bin", "w")
packed = Packed("packed.gz")
for step in range(60):
    loss = net(torch.randn(4, 3)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    logger.info("step %d", step)
    writer.add_step(step, loss.item())
    raw.put(f"{step}\\n")
    packed.write(b"%d " % step)
raw.close()
packed.close()
writer.close()
print("done")
"""


def files(folder: Path) -> dict[str, bytes]:
    """What a run left; of event files, which have the time in them, how long they are."""
    left = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    mine = {name: path for name, path in left.items() if not name.endswith((".py", ".pyc"))}
    return {
        "board" if "board" in name else name: (
            b"%d" % path.stat().st_size if "board" in name else path.read_bytes()
        )
        for name, path in mine.items()
    }


def run(folder: Path, *command: str) -> dict[str, bytes]:
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=280)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-3000:]
    assert "Logging error" not in done.stderr
    return files(folder)


@pytest.mark.torchrun
def test_two_ranks_leave_the_files_of_one_process(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    original, ranks = tmp_path / "original", tmp_path / "ranks"
    original.mkdir()
    (original / "train.py").write_text(SCRIPT)
    (original / "logs.py").write_text(LOGS)
    command = [sys.executable, "-m", "dp2ddp", "convert", str(original / "train.py"), "-o", str(ranks)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout

    wanted = run(original, sys.executable, "train.py")
    found = run(ranks, *FORKED, "2", "train.py")

    assert len(wanted["quiet.log"].splitlines()) == 60
    assert len([name for name in wanted if name.startswith("turned")]) > 4
    assert wanted["folder/shouted.log"].startswith(b"STEP 0\n")
    assert found.keys() >= wanted.keys() >= {"steps.txt", "board", "raw.bin", "packed.gz", "lines.log"}
    assert [name for name in wanted if found[name] != wanted[name]] == []


def with_class(text: str) -> Conversion:
    return converted(NET + text)


ONCE = {
    "a second name for the base": "import logging\nB = logging.FileHandler\nclass H(B): pass\nh = H('a')\n",
    "a base of a base": "import logging\nclass G(logging.FileHandler): pass\nclass H(G): pass\nh = H('a')\n",
    "a mixin beside the base": "import logging\nclass M: pass\nclass H(M, logging.FileHandler): pass\nh = H('a')\n",
    "a second name for the class": "import logging\nclass G(logging.FileHandler): pass\nH = G\nh = H('a')\n",
    "in a function": "import logging\ndef f():\n    class H(logging.FileHandler): pass\n    h = H('a')\nf()\n",
    "in a block": "import io\nclass H(io.FileIO): pass\nwith H('a', 'w') as h:\n    h.write(b'a')\n",
    "its mode in the class": "import io\nclass H(io.FileIO):\n    def __init__(self, p):\n"
    "        io.FileIO.__init__(self, p, 'w')\nh = H('a')\n",
    "a table of libraries": "import zipfile\nclass H(zipfile.ZipFile): pass\nh = H('a', 'w')\n",
    "a tracker": "from tensorboardX import SummaryWriter\nclass H(SummaryWriter): pass\nh = H('a')\n",
    "a writer that nobody knows": "import nobody\nclass H(nobody.VideoWriter): pass\nh = H('a.mp4')\n",
    "a call for nothing": "import logging\nclass H(logging.FileHandler):\n    def count(self): return 1\n"
    "h = H('a')\nh.count()\n",
}


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in ONCE.items()])
def test_rank_0_has_its_objects(text: str) -> None:
    conversion = with_class(text)

    assert not conversion.hazards
    assert "_on_rank_zero(H, 'a" in conversion.after
    assert not converted(conversion.after).changed


HAZARDS = {
    "its mode comes from the call": "import io\nclass H(io.FileIO):\n    def __init__(self, p, m):\n"
    "        super().__init__(p, m)\nh = H('a', 'w')\n",
    "a store that may be read": "import numpy as np\nclass H(np.memmap):\n    def __new__(cls, p): return "
    "super().__new__(cls, p, 'f4', 'w+', shape=3)\nh = H('a')\n",
    "a temporary folder": "import tempfile\nclass H(tempfile.TemporaryDirectory): pass\nh = H()\n",
    "in a table": "import logging\nclass H(logging.FileHandler): pass\nkinds = {'file': H}\n",
    "in a partial": "import functools, logging\nclass H(logging.FileHandler): pass\n"
    "make = functools.partial(H, 'a')\n",
    "given back": "import logging\ndef f():\n    class H(logging.FileHandler): pass\n    return H\nh = f()('a')\n",
    "asked for what it gives": "import logging\nclass H(logging.FileHandler):\n    def count(self): return 1\n"
    "h = H('a')\nif h.count():\n    pass\n",
    "asked for what it keeps": "import logging\nclass H(logging.FileHandler):\n    def emit(self, record):\n"
    "        self.lines = 1\nh = H('a')\nprint(h.lines)\n",
    "a method that writes besides": "import logging, os\nclass H(logging.FileHandler):\n"
    "    def close(self):\n        os.makedirs('b')\nh = H('a')\n",
}


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in HAZARDS.items()])
def test_what_rank_0_cannot_do_alone_is_a_hazard(text: str) -> None:
    assert [hazard.code for hazard in with_class(text).hazards] == ["DDP507"]


NOTHING = {
    "a file that is read": "import io\nclass H(io.FileIO): pass\nh = H('a')\n",
    "an archive that the class reads": "import zipfile\nclass H(zipfile.ZipFile):\n    def __init__(self, p):\n"
    "        super().__init__(p, 'r')\n    def image(self): return 1\nh = H('a')\nprint(h.image())\n",
    "no file": "import logging\nclass H(logging.StreamHandler):\n    def count(self): return 1\nh = H()\n"
    "print(h.count())\n",
    "asked for a path": "import logging\nclass H(logging.FileHandler):\n    def __init__(self, path):\n"
    "        self.path = path\nh = H\nprint(isinstance(net, (H, int)))\n",
    "in a type": "import logging\nclass H(logging.FileHandler): pass\nkinds: dict[str, H] = {}\n",
    "a class of the project alone": "class G: pass\nclass H(G): pass\nh = H()\n",
}


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in NOTHING.items()])
def test_other_classes_are_left_alone(text: str) -> None:
    conversion = with_class(text)

    assert not conversion.hazards
    assert "rank_zero(H" not in conversion.after
    assert "make_" not in conversion.after


def test_a_base_in_another_file_is_found() -> None:
    project = project_of(
        f"{NET}import logs\nclass H(logs.G): pass\nh = H('a')\n",
        logs="from logging import FileHandler as F\nclass G(F): pass\n",
    )
    conversion = convert(project, Options(helpers=HelperPlace.PACKAGE))

    assert "object_on_rank_zero(H, 'a')" in conversion.after
