"""What of a script acts on the world outside."""

from __future__ import annotations

import pytest

from tests.codemod.scripts import facts_of

WRAP = "import torch\nnet = torch.nn.DataParallel(Net())\n"


def kinds(text: str) -> list[str]:
    return [effect.kind for effect in facts_of(WRAP + text).effects]


def test_a_method_of_the_users_model_runs_on_every_rank() -> None:
    assert kinds("figure.save('a.png')\n") == ["saver"]
    assert kinds("net.module.save('latest.pth')\n") == []
    assert kinds("class Plot:\n    def save(self, name):\n        pass\nPlot().save('a.png')\n") == []


def test_what_is_written_nowhere_is_no_file() -> None:
    assert kinds("import os\nfile = open(os.devnull, 'w')\n") == []
    assert kinds("file = open('/dev/null', 'w')\n") == []
    assert kinds("import os\nfile = open(os.pardir, 'w')\n") == ["open"]


IMAGE = "from PIL import Image\nimage = Image.fromarray(x)\n"


@pytest.mark.parametrize(
    "text",
    [
        "from pathlib import Path\nimage.save(Path('out') / 'a.png')\n",
        "image.save(str(out))\n",
        "path = os.path.join(folder, 'a.png')\nimage.save(path)\n",
        "def draw(image, path):\n    image.save(path)\n",
        "def draw(image, out: str):\n    image.save(out)\n",
        "image.save(args.out)\n",
        "image.save(cfg['out_path'])\n",
        "for path in paths:\n    image.save(path)\n",
        "save = image.save\nsave('a.png')\n",
        "torch.jit.script(net).save(str(p))\n",
        "torch.export.save(program, p)\n",
        "import some_library\nsome_library.write_image(image, 'a.png')\n",
        "import some_library as lib\nlib.save_video(frames, out)\n",
        "class Log:\n    def save(self, path):\n        Image.fromarray(x).save(path)\n",
        "class Net(torch.jit.ScriptModule):\n    def save(self, path):\n        super().save(path)\n",
        "frame.to_netcdf(path)\n",
        "frame.to_msgpack(path)\n",
        "frame.to_html('a.html')\n",
        "mesh.export('a.ply')\n",
        "from path import Path\n(Path(a) / b).makedirs_p()\n",
        "args.save_path.makedirs_p()\n",
        "from six.moves import urllib\nurllib.request.urlretrieve(url, path, hook)\n",
        "from six.moves.urllib.request import urlretrieve\nurlretrieve(url, path)\n",
    ],
)
def test_what_looks_like_a_sink_is_one(text: str) -> None:
    assert kinds(IMAGE + text) == ["saver"]


@pytest.mark.parametrize(
    "text",
    [
        "import io\nbuffer = io.BytesIO()\nimage.save(buffer, format='png')\n",
        "from io import BytesIO\nwith BytesIO() as b:\n    image.save(b, 'PNG')\n",
        "import json\njson.dump(x, file)\n",
        "import pickle\npickle.Pickler(file).dump(x)\n",
        "file.write('a.png')\n",
        "ctx.save_for_backward(x)\n",
        "self.save_hyperparameters()\n",
        "text = frame.to_json()\n",
        "optimizer.step()\nd.update(path='a.png')\n",
        "program = torch.export.export(net, (x,))\n",
        "class Saver:\n    def save(self, path):\n        pass\ndef go(saver, path):\n    saver.save(path)\n",
        "from torch_ema import ExponentialMovingAverage\nema = ExponentialMovingAverage(p)\nema.store(p)\n",
        "import plotly\nfigure = plotly.line(x)\npicture = figure.to_image(width=3)\n",
        "made = made.export(3)\nmade = made.save\n",  # nothing to follow
        "import csv\nwriter = csv.DictWriter(file, fields)\n",
        "import sys\nsys.stdout.write('a.txt')\n",
        "from tqdm import tqdm\ntqdm.write('a.txt')\n",
        "import logging\nlogging.getLogger().addHandler(h)\n",
        "import numpy as np, io\nnp.save(io.BytesIO(), x)\n",
    ],
)
def test_what_goes_into_memory_or_nowhere_is_none(text: str) -> None:
    assert kinds(IMAGE + text) == []


def test_where_nothing_tells_a_path_from_an_open_file_the_run_decides() -> None:
    assert kinds("import io\ndef draw(figure, out):\n    figure.savefig(out)\ndraw(f, io.BytesIO())\n") == [
        "saver or open file"
    ]
    assert kinds("def draw(figure, out):\n    figure.savefig(out)\n") == ["saver"]  # nothing is open anywhere


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("import h5py\nf = h5py.File(p, 'w')\n", ["opener"]),
        ("import zarr\nz = zarr.open(p)\n", ["opener"]),
        ("import zarr\nz = zarr.open(p, mode='r')\n", []),
        ("import netCDF4\nf = netCDF4.Dataset(p, 'w')\n", ["opener"]),
        ("import tarfile\nt = tarfile.open(p, 'w:gz')\n", ["opener"]),
        ("import tarfile, io\nt = tarfile.open(fileobj=io.BytesIO(), mode='w')\n", []),
        ("import unheard_of\nf = unheard_of.open('a.bin', 'wb')\n", ["opener"]),
        ("import unheard_of\nf = unheard_of.open('a.bin', 'rb')\n", []),
        ("import unheard_of\nv = unheard_of.VideoWriter('a.mp4')\n", ["opener"]),
        (
            "import lmdb\nenv = lmdb.open(p)\nwith env.begin(write=True) as t:\n    t.put(k, v)\n",
            ["read and written"],
        ),
        ("import lmdb\nenv = lmdb.open(p, readonly=True, lock=False)\n", []),
        ("import tempfile\nwith tempfile.TemporaryDirectory() as d:\n    pass\n", ["temporary"]),
        ("import pandas as pd\nbook = pd.ExcelWriter('a.xlsx')\nbook.save()\n", ["opener"]),
        ("import tempfile\nf = tempfile.TemporaryFile()\n", []),
    ],
)
def test_what_is_opened_to_be_written(text: str, kind: list[str]) -> None:
    assert kinds(text) == kind


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import functools\nsave = functools.partial(torch.save, pickle_protocol=4)\nsave(x, p)\n", ["save"]),
        ("from functools import partial\nimport numpy as np\nsave = partial(np.save, 'a.npy')\n", ["saver"]),
        ("from functools import partial\nsave = partial(figure.savefig, dpi=100)\n", ["saver"]),
        ("SAVERS = {'torch': torch.save}\n", ["save"]),
        ("def fit(net, save=torch.save):\n    save(net, p)\n", ["save"]),
        ("self.save = torch.save\n", ["save"]),
        ("save = torch.save\nsave(x, p)\n", []),  # its call is seen
        ("import threading\nthreading.Thread(target=torch.save, args=(x, p)).start()\n", []),  # DDP906's
        ("assert save is not torch.save\n", []),
    ],
)
def test_functions_that_write_and_are_handed_on(text: str, found: list[str]) -> None:
    assert [mention.kind for mention in facts_of(WRAP + text).mentions] == found


@pytest.mark.parametrize("given", ["out, 'PNG'", "out, format='png'", "out, **options", "out, quality=90"])
def test_a_format_is_no_path(given: str) -> None:
    text = f"import io\ndef draw(image, out):\n    image.save({given})\ndraw(i, io.BytesIO())\n"
    assert kinds(text) == ["saver or open file"]


def test_what_is_given_nothing_is_known_by_its_name_or_not_at_all() -> None:
    opened = "import io\nbuffer = io.BytesIO()\n"
    assert kinds(f"{opened}args.save_path.makedirs_p()\n") == ["saver"]
    assert kinds(f"{opened}session.save()\n") == ["saver of who knows what"]
