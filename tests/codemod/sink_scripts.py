"""Scripts with one sink each: a table of libraries and ways to write, times ways to name the path.

None of the libraries need be installed: the scripts are converted, not run. The line that writes has the mark `# sink`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

MARK = "  # sink"

# name -> imports, what stands before it, the line that writes `{path}`
WRITERS = {
    "torch.save": ("", "", "torch.save(net.state_dict(), {path})"),
    "torch.save, renamed": ("from torch import save as keep", "", "keep(net.state_dict(), {path})"),
    "torch.save, partial": (
        "from functools import partial",
        "",
        "keep = partial(torch.save, net.state_dict())\n    keep({path})",
    ),
    "torch.jit.save": ("", "", "torch.jit.save(torch.jit.script(net.module), {path})"),
    "ScriptModule.save": ("", "scripted = torch.jit.script(net.module)", "scripted.save({path})"),
    "torch.export.save": (
        "",
        "program = torch.export.export(net.module, (x,))",
        "torch.export.save(program, {path})",
    ),
    "torch.onnx.export": ("", "", "torch.onnx.export(net.module, x, {path})"),
    "torchvision.utils": ("import torchvision", "", "torchvision.utils.save_image(x, {path})"),
    "torchvision.io": ("from torchvision.io import write_video", "", "write_video({path}, frames, 25)"),
    "PIL": ("from PIL import Image", "image = Image.fromarray(pixels)", "image.save({path})"),
    "PIL, bound": ("from PIL import Image", "keep = Image.new('L', (2, 2)).save", "keep({path})"),
    "PIL, of a chain": (
        "from torchvision.transforms import ToPILImage",
        "",
        "ToPILImage()(x).convert('L').save({path})",
    ),
    "numpy.save": ("import numpy as np", "", "np.save({path}, pixels)"),
    "numpy.savez": ("import numpy as np", "", "np.savez_compressed({path}, a=pixels)"),
    "numpy.savetxt": ("from numpy import savetxt", "", "savetxt({path}, pixels)"),
    "numpy, a method": ("", "", "pixels.tofile({path})"),
    "matplotlib": ("import matplotlib.pyplot as plt", "", "plt.savefig({path}, dpi=100)"),
    "matplotlib, a figure": (
        "import matplotlib.pyplot as plt",
        "figure, axes = plt.subplots()",
        "figure.savefig({path})",
    ),
    "matplotlib, an animation": ("", "", "animation.save({path}, fps=10)"),
    "imageio": ("import imageio", "", "imageio.mimsave({path}, frames)"),
    "imageio, v3": ("import imageio.v3 as iio", "", "iio.imwrite({path}, pixels)"),
    "cv2": ("import cv2", "", "cv2.imwrite({path}, pixels)"),
    "skimage": ("from skimage import io as skio", "", "skio.imsave({path}, pixels)"),
    "pandas": ("import pandas as pd", "frame = pd.DataFrame(rows)", "frame.to_csv({path})"),
    "pandas, parquet": ("import pandas as pd", "", "pd.DataFrame(rows).to_parquet({path})"),
    "pandas, json": ("import pandas as pd", "", "pd.DataFrame(rows).to_json({path})"),
    "pyarrow": ("import pyarrow.parquet as pq", "", "pq.write_table(table, {path})"),
    "scipy": ("from scipy.io import savemat", "", "savemat({path}, rows)"),
    "scipy, sound": ("import scipy.io.wavfile", "", "scipy.io.wavfile.write({path}, 16000, pixels)"),
    "soundfile": ("import soundfile as sf", "", "sf.write({path}, pixels, 16000)"),
    "torchaudio": ("import torchaudio", "", "torchaudio.save({path}, x, 16000)"),
    "joblib": ("import joblib", "", "joblib.dump(rows, {path})"),
    "safetensors": ("from safetensors.torch import save_file", "", "save_file(net.state_dict(), {path})"),
    "transformers": ("", "", "net.module.backbone.save_pretrained({path})"),
    "xgboost": ("import xgboost", "booster = xgboost.train(rows, x)", "booster.save_model({path})"),
    "plotly": ("import plotly.express as px", "figure = px.line(rows)", "figure.write_html({path})"),
    "trimesh": ("import trimesh", "mesh = trimesh.load('in.ply')", "mesh.export({path})"),
    "omegaconf": ("from omegaconf import OmegaConf", "", "OmegaConf.save(rows, {path})"),
    "a library that nobody knows": ("import nobody", "", "nobody.save_everything(rows, {path})"),
    "an object that nobody knows": ("import nobody", "thing = nobody.make()", "thing.save({path})"),
    "profiler": ("", "", "profiler.export_chrome_trace({path})"),
    "shutil": ("import shutil", "", "shutil.copyfile('train.py', {path})"),
    "os": ("import os", "", "os.makedirs({path}, exist_ok=True)"),
    "open": ("", "", "log = open({path}, 'w')"),
    "gzip": ("import gzip", "", "log = gzip.open({path}, 'wt')"),
    "zipfile": ("import zipfile", "", "archive = zipfile.ZipFile({path}, 'w')"),
    "tarfile": ("import tarfile", "", "archive = tarfile.open({path}, 'w:gz')"),
    "h5py": ("import h5py", "", "store = h5py.File({path}, 'w')"),
    "h5py, added to": ("import h5py", "", "store = h5py.File({path}, mode='a')"),
    "zarr": ("import zarr", "", "store = zarr.open({path}, mode='w')"),
    "tables": ("import tables", "", "store = tables.open_file({path}, 'w')"),
    "netCDF4": ("from netCDF4 import Dataset", "", "store = Dataset({path}, 'w')"),
    "lmdb": ("import lmdb", "", "store = lmdb.open({path})\n    store.begin(write=True).put(b'a', b'b')"),
    "sqlite3": ("import sqlite3", "", "store = sqlite3.connect({path})\n    store.commit()"),
    "shelve": ("import shelve", "", "store = shelve.open({path})"),
    "dbm": ("import dbm", "", "store = dbm.open({path}, 'c')"),
    "numpy.memmap": ("import numpy as np", "", "store = np.memmap({path}, 'float32', 'w+', shape=(3,))"),
    "pandas, a store": ("import pandas as pd", "", "store = pd.HDFStore({path})"),
    "pandas, a book": ("import pandas as pd", "", "book = pd.ExcelWriter({path})"),
    "logging": ("import logging", "", "handler = logging.FileHandler({path})"),
    "logging, rotating": (
        "from logging.handlers import RotatingFileHandler",
        "",
        "handler = RotatingFileHandler({path})",
    ),
    "a writer that nobody knows": ("import nobody", "", "video = nobody.VideoWriter({path})"),
    "an opener that nobody knows": ("import nobody", "", "store = nobody.open_store({path}, 'w')"),
    "mentioned in a table": (
        "import numpy as np",
        "writers = {{'npy': np.save}}  # sink",
        "writers['npy']({path}, pixels)",
    ),
}

# name -> imports, what stands before the function, its parameters, what stands in it, the expression
PATHS = {
    "literal": ("", "", "", "", "'out.bin'"),
    "f-string": ("", "", "", "", "f'out_{epoch}.bin'"),
    "Path": ("from pathlib import Path", "", "", "", "Path('out.bin')"),
    "str(path)": ("from pathlib import Path", "p = Path('out')", "", "", "str(p)"),
    "slash": ("from pathlib import Path", "folder = Path('out')", "", "", "folder / 'out.bin'"),
    "join": ("import os.path as osp", "", "", "", "osp.join('out', 'out.bin')"),
    "variable": ("", "", "", "where = 'out' + '.bin'", "where"),
    "parameter": ("", "", ", where", "", "where"),
    "setting": ("", "", ", args", "", "args.out"),
    "table": ("", "cfg = {'output': 'out.bin'}", "", "", "cfg['output']"),
    "attribute": ("", "", ", self", "", "self.target"),
    "loop": ("", "", ", places", "for where in places: pass", "where"),
}


@dataclass(frozen=True)
class SinkScript:
    """A script, and what its sink is."""

    writer: str
    path: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.writer}; {self.path}"


def sink_scripts() -> Iterator[SinkScript]:
    for writer, path in itertools.product(WRITERS, PATHS):
        yield SinkScript(writer, path, _text(writer, path))


def _text(writer: str, path: str) -> str:
    imports, before, line = WRITERS[writer]
    more_imports, above, parameters, inside, expression = PATHS[path]
    if MARK.strip() not in before:
        line = line.replace("\n", f"{MARK}\n", 1) if "\n" in line else line + MARK
    body = [before.replace("{{", "{").replace("}}", "}"), inside, line.replace("{path}", expression)]
    called = "".join(f", {one.strip()}=None" for one in parameters.split(",") if one.strip())
    return "\n".join(
        [
            "import torch",
            *filter(None, (imports, more_imports)),
            "net = torch.nn.DataParallel(torch.nn.Linear(3, 3).cuda())",
            "optimizer = torch.optim.SGD(net.parameters(), 0.1)",
            *filter(None, (above,)),
            f"def keep_results(net, x, pixels, frames, rows, epoch{parameters}):",
            *(f"    {one}" for one in body if one),
            "for epoch in range(3):",
            "    x = torch.ones(4, 3).cuda()",
            "    optimizer.zero_grad()",
            "    net(x).sum().backward()",
            "    optimizer.step()",
            f"    keep_results(net, x, None, None, None, epoch{called})",
            "",
        ]
    )
