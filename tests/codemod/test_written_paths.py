"""Which texts of a script may be paths that it writes to."""

from __future__ import annotations

import ast

import pytest

from dp2ddp.codemod.result_files import written_paths


@pytest.mark.parametrize(
    "text",
    [
        "torch.save(net, 'o.bin')",
        "open('o.bin', 'w')",
        "open('o.bin', mode='ab')",
        "h5py.File('o.bin', 'r+')",
        "np.memmap('o.bin', dtype='u1', mode='w+')",
        "os.makedirs(os.path.join('o.bin', name))",
        "frame.to_csv('o.bin')",
        "logging.FileHandler('o.bin')",
        "OUT = 'o.bin'\nnp.save(OUT, a)",
        "OUT = Path('o.bin')\nOUT.mkdir()\n",
        "parser.add_argument('-o', '--out-file', default='o.bin')\ntorch.save(a, args.out_file)",
        "def main(out): torch.save(net, out)\nmain(out='o.bin')",
    ],
)
def test_what_may_be_written_is_found(text: str) -> None:
    assert "o.bin" in written_paths([ast.parse(text)])


@pytest.mark.parametrize(
    "text",
    ["open('o.bin')", "open('o.bin', 'rb')", "torch.load('o.bin')", "h5py.File('o.bin')", "print('o.bin')"],
)
def test_what_is_read_is_not(text: str) -> None:
    assert "o.bin" not in written_paths([ast.parse(text)])
