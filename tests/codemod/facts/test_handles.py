"""What is done with an HDF5 file."""

from __future__ import annotations

import pytest

from dp2ddp.codemod.facts.handles import reads_of, writes_of
from tests.codemod.scripts import script_of


@pytest.mark.parametrize(
    ("use", "reads", "writes"),
    [
        pytest.param("x = f['x'][:].astype('f4')\nf.close()", 1, 0, id="read"),
        pytest.param("names = list(f.keys())\nok = 'x' in f", 2, 0, id="names"),
        pytest.param("f['x'][:] = x", 0, 1, id="rows written"),
        pytest.param("f['x'] = x", 0, 1, id="written"),
        pytest.param("f['g'].create_dataset('x', data=x)", 0, 1, id="made in a group"),
        pytest.param("save(f)", 0, 1, id="handed on"),
    ],
)
def test_reads_and_writes(use: str, reads: int, writes: int) -> None:
    script = script_of(f"import h5py\nf = h5py.File('a.h5', 'r+')\n{use}\n")
    (opened,) = script.calls_of("h5py.File")
    assert (len(reads_of(script, opened)), len(writes_of(script, opened))) == (reads, writes)
