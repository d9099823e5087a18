"""The ways in which scripts write."""

import csv
import gzip
import json
import logging
import os
import shutil
import sqlite3
import subprocess
from pathlib import Path

import numpy as np
import torch


def write(model, folders):
    """Over what lies in `theirs`, into new folders, and into each folder that is named."""
    for name in ("results", *folders):
        os.makedirs(name, exist_ok=True)
        Path(name, "note.txt").write_text("new")
    with open("theirs/log.txt", "a") as file:
        file.write("one line more\n")
    with open("theirs/metrics.csv", "w", newline="") as file:
        csv.writer(file).writerow([1, 2])
    torch.save(model.state_dict(), "theirs/best.pt")
    np.save("theirs/features.npy", np.ones(3))
    mapped = np.memmap("theirs/mapped.bin", dtype="u1", mode="r+")
    mapped[0] = 7
    mapped.flush()
    torch.from_file("theirs/tensor.bin", shared=True, size=4, dtype=torch.uint8).fill_(9)
    database = sqlite3.connect("theirs/runs.db")
    database.execute("insert into runs values (2)")
    database.commit()
    database.close()
    os.truncate("theirs/short.bin", 1)
    Path("theirs/new.json").write_text(json.dumps({"loss": 1}))
    os.replace("theirs/new.json", "theirs/state.json")
    os.remove("theirs/old.txt")
    shutil.rmtree("theirs/cache")
    os.rename("theirs/kept", "theirs/moved")
    handler = logging.FileHandler("theirs/train.log")
    logging.getLogger("train").addHandler(handler)
    logging.getLogger("train").warning("an entry")
    handler.close()
    with gzip.GzipFile("theirs/packed.gz", "wb", mtime=0) as file:
        file.write(b"packed")
    if not os.path.exists("no shell"):
        subprocess.run(["sh", "-c", "echo more >> theirs/shell.txt"], check=True)
    os.chmod("theirs/mode.txt", 0o600)
    os.symlink("best.pt", "theirs/latest.pt")
    os.symlink("moved", "theirs/latest_run")
