"""Sinks that really run: two ranks, and every file is written by rank 0 alone, with what DataParallel's run writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from dp2ddp.codemod.convert import convert
from dp2ddp.runtime.process.run import Run, watch
from dp2ddp.runtime.process.server import Server
from dp2ddp.runtime.process.writes import read_writes
from dp2ddp.runtime.stage import Mode, Stage
from dp2ddp.source.projects import read_project
from tests.ranks import stage_of

pytestmark = pytest.mark.torchrun

# Each writes a file, or several, of its own; the names say what is different about them.
SINKS = """
def image_through_a_path():
    Image.fromarray(pixels).save(Path("out") / "a.png")


def image_through_str(path=Path("out") / "b.png"):
    Image.fromarray(pixels).save(str(path))


def image_through_a_variable():
    path = os.path.join("out", "c.png")
    Image.fromarray(pixels).save(path)


def image_through_a_parameter(where):
    Image.fromarray(pixels).save(where)


def image_by_a_bound_method():
    keep = Image.fromarray(pixels).save
    keep("out/e.png")


def image_into_memory():
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="png")
    assert len(buffer.getvalue()) > 0  # on each rank


def image_wherever(where):
    Image.fromarray(pixels).save(where, format="png")


def partial_of_torch_save():
    functools.partial(torch.save, pickle_protocol=2)(net.state_dict(), "out/f.pt")


def partial_of_a_state():
    keep = functools.partial(torch.save, net.state_dict())
    for name in ("g.pt", "h.pt"):
        keep(os.path.join("out", name))


def a_table_of_writers():
    writers = {"npy": np.save, "pt": lambda path, data: torch.save(data, path)}
    for ending, write in writers.items():
        write(f"out/table.{ending}", pixels)


def a_scripted_module():
    scripted = torch.jit.script(net.module)
    path = Path("out") / "scripted.pt"
    scripted.save(str(path))
    torch.jit.load(path)


def weights_as_safetensors():
    save_file({name: each.cpu() for name, each in net.state_dict().items()}, "out/net.safetensors")


def a_database():
    base = sqlite3.connect("out/runs.db")
    base.execute("create table runs (loss real)")
    base.execute("insert into runs values (1.5)")
    base.commit()
    base.close()


def a_shelf():
    with shelve.open("out/shelf") as shelf:
        shelf["loss"] = 1.5


def a_memory_map():
    filled = np.memmap("out/map.bin", dtype="float32", mode="w+", shape=(2, 3))
    filled[:] = 1.0
    filled.flush()


def an_archive():
    with tarfile.open("out/code.tar", "w") as archive:
        archive.add("out/a.png", filter=lambda entry: None)


def a_temporary_folder():
    with tempfile.TemporaryDirectory() as folder:
        best = os.path.join(folder, "best.pt")
        torch.save(net.state_dict(), best)
        net.load_state_dict(torch.load(best))
    print("gone", not os.path.exists(folder))


def json_by_hand():
    with Path("out/log.json").open("w") as file:
        json.dump({"loss": 1.5}, file)
    (Path("out") / "note.txt").write_text("done")


def moved():
    shutil.copy("out/note.txt", "out/copied.txt")
    os.replace("out/copied.txt", "out/moved.txt")
"""

HEAD = """
import functools, io, json, os, shelve, shutil, sqlite3, tarfile, tempfile
from pathlib import Path
import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file

torch.manual_seed(0)
net = torch.nn.DataParallel(torch.nn.Linear(3, 3).cuda())
net(torch.ones(4, 3).cuda()).sum().backward()
pixels = np.zeros((4, 4), np.uint8)
"""

FOOT = """
os.makedirs("out")
image_through_a_path()
image_through_str()
image_through_a_variable()
for place in ("out/d1.png", Path("out/d2.png")):
    image_through_a_parameter(place)
image_by_a_bound_method()
image_into_memory()
image_wherever("out/wherever.png")
memory = io.BytesIO()
image_wherever(memory)
assert len(memory.getvalue()) > 0  # on each rank
partial_of_torch_save()
partial_of_a_state()
a_table_of_writers()
a_scripted_module()
weights_as_safetensors()
a_database()
a_shelf()
a_memory_map()
an_archive()
a_temporary_folder()
json_by_hand()
moved()
print(sorted(path.name for path in Path("out").iterdir()))
"""

SAME_BYTES = {
    "a.png", "b.png", "c.png", "d1.png", "d2.png", "e.png", "wherever.png", "table.npy", "note.txt",
    "moved.txt",
}  # fmt: skip
SAME_BYTES |= {"f.pt", "g.pt", "h.pt", "log.json", "map.bin", "net.safetensors", "table.pt"}


@pytest.fixture(scope="module")
def runs(server: Server, tmp_path_factory: pytest.TempPathFactory) -> dict[Mode, Run]:
    folder = tmp_path_factory.mktemp("sinks")
    script = folder / "dp.py"
    script.write_text(HEAD + SINKS + FOOT)
    conversion = convert(read_project(script))
    assert conversion.hazards == ()
    for file in conversion.written_files.items():
        (folder / ("ddp.py" if file[0].name == "dp.py" else file[0].name)).write_bytes(file[1])
    stages: dict[Mode, Stage] = {}
    for mode in ("dp", "ddp"):
        (folder / mode).mkdir()
        where = {"folder": str(folder / mode), "run_folder": str(folder / f"run_{mode}")}
        stages[mode] = stage_of(folder / f"{mode}.py", mode, **where)
    found = watch([server.start(stage) for stage in stages.values()], 300.0)
    return dict(zip(stages, found, strict=True))


def test_both_runs_end_well_and_say_the_same(runs: dict[Mode, Run]) -> None:
    assert [run.output(0, "err")[-3000:] for run in runs.values() if run.failure] == []
    assert runs["ddp"].output(0) == runs["dp"].output(0)
    assert runs["ddp"].output(1) == ""


def test_no_rank_but_the_first_writes(runs: dict[Mode, Run]) -> None:
    written = read_writes(Path(runs["ddp"].stage.run_folder), 1)
    assert [(write.path, write.place) for write in written] == []


def test_files_have_the_bytes_of_data_parallels(runs: dict[Mode, Run]) -> None:
    ours, theirs = (Path(runs[mode].stage.folder) / "out" for mode in ("dp", "ddp"))
    assert sorted(path.name for path in ours.iterdir()) == sorted(path.name for path in theirs.iterdir())
    assert [name for name in SAME_BYTES if (ours / name).read_bytes() != (theirs / name).read_bytes()] == []
