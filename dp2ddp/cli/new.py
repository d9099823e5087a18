"""`dp2ddp new`: a small training script in both modes."""

from __future__ import annotations

import shlex
from pathlib import Path

import click


@click.command("new")
@click.argument("folder", type=click.Path(path_type=Path))
def command(folder: Path) -> None:
    """Write a small training script into FOLDER, with DataParallel and with DistributedDataParallel.

    Both train the same, from shared model and data modules. Nothing is overwritten.
    """
    from dp2ddp.new import write_new

    if folder.suffix in (".py", ".ipynb"):
        raise click.UsageError(
            f"{folder}: a folder with several files is made; name it without {folder.suffix}"
        )
    for path in write_new(folder):
        click.echo(path)
    there = shlex.quote(str(folder))
    click.echo(f"try it: cd {there} && torchrun --standalone --nproc-per-node 2 train_ddp.py", err=True)
