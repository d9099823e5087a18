"""Devices that are named by an index, under whatever name the index travels; and second devices, which stay apart."""

from __future__ import annotations

import textwrap

import pytest

from dp2ddp.codemod.facts.origins import Origins
from tests.codemod.scripts import converted, facts_of, script_of

HEAD = "import argparse\nimport torch\nnet = torch.nn.DataParallel(net{})\n"


def body(text: str, ids: str = "") -> tuple[str, list[str]]:
    """The converted lines behind the wrap, and the codes of the hazards."""
    conversion = converted(
        HEAD.format(ids and f", {ids}") + textwrap.dedent(text), select=("DDP102", "DDP101", "DDP201")
    )
    _, _, rest = conversion.after.partition("DDP(net)\n")
    return rest.replace("join_process_group()\n", "").strip(), [one.code for one in conversion.hazards]


ONE_DEVICE = [
    # (of one assignment, a chain of them, a constructor's or a function's argument, a default)
    ("gpu = 0\nx = x.to(gpu)", "x = x.to('cuda')"),
    ("gpu = 0\nother = gpu\nx = x.cuda(other)", "x = x.cuda()"),
    ("device = args.gpu\nx = x.cuda(device)\ny = y.cuda(args.gpu)", "x = x.cuda()\ny = y.cuda()"),
    (
        "class T:\n    def __init__(self, device):\n        self.output_device = device\n"
        "    def step(self, x):\n        return x.cuda(self.output_device)\nT(args.gpu)\ny = y.cuda(args.gpu)",
        "return x.cuda()",
    ),
    (
        "class T:\n    def __init__(self, a, gpu=0):\n        self.gpu = gpu\n"
        "    def step(self, x):\n        return torch.zeros(2, device=self.gpu)\nT(1)",
        "return torch.zeros(2, device='cuda')",
    ),
    ("def f(x, where):\n    return x.to(where)\nf(x, 0)\nf(x, where=0)", "return x.to('cuda')"),
    ("def f(x, where=0):\n    return x.to(device=where)\nf(x)", "return x.to(device='cuda')"),
    (
        "class T:\n    def __init__(self, args):\n        self.args = args\n"
        "    def step(self, x):\n        return x.cuda(self.args.gpu)\ny = y.cuda(args.gpu)",
        "return x.cuda()",
    ),
    ("p.add_argument('--gpu', type=int)\nargs = p.parse_args()\nx = x.to(args.gpu)", "x = x.to('cuda')"),
    ("gpu = 0\ndevice = gpu if torch.cuda.is_available() else 'cpu'\nx = x.to(device)", "device = 'cuda' if"),
    ("device = torch.device('cuda:0')\nx = x.to(device)", "device = torch.device('cuda')\nx = x.to(device)"),
    ("device = None\nif a:\n    device = 0\nx = x.to(device)", "x = x.to('cuda')"),
    ("x = x.cuda(torch.cuda.current_device())\ny = y.cuda(args.gpu)", "x = x.cuda()\ny = y.cuda()"),
]


@pytest.mark.parametrize(("text", "expected"), ONE_DEVICE)
def test_one_device_is_one_under_all_its_names(text: str, expected: str) -> None:
    after, hazards = body(text)

    assert hazards == []
    assert expected in after.replace('"', "'")


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        ("gpus", "out = gpus[0] if type(gpus) is list else gpus\nx = x.cuda(out)\ny = y.cuda(args.gpu)"),
        ("[args.a, args.b]", "main = args.a\nx = x.to(torch.device('cuda', main))\ny = y.cuda(args.gpu)"),
        ("gpus, output_device=args.out", "y = y.cuda(args.out)\nx = x.cuda(args.gpu)"),
        ("[2, 3], output_device=3", "first = 2\ny = y.to(first)\nx = x.cuda(3)"),
    ],
)
def test_the_devices_that_the_wrap_names_are_the_rank_s_own(ids: str, text: str) -> None:
    after, hazards = body(text, ids)

    assert hazards == []
    assert "cuda(args" not in after


@pytest.mark.parametrize(
    "text",
    [
        "first = 0\nsecond = 1\nx = x.to(first)\ny = y.to(second)",
        "x = x.cuda(args.gpu)\ny = y.cuda(args.other)",
        "gpu = args.gpu\nif a:\n    gpu = args.other\nx = x.cuda(gpu)\ny = y.cuda(args.gpu)",
        "def f(x, where):\n    return x.cuda(where)\nf(x, args.a)\nf(x, args.b)\ny = y.cuda(args.a)",
        "class T:\n    def __init__(self, gpu):\n        self.place = gpu\n    def f(self, x):\n"
        "        return x.cuda(self.place)\nT(args.a)\nT(args.b)\ny = y.cuda(args.a)",
        "for i in range(2):\n    x = x.cuda(i)\ny = y.cuda(args.gpu)",
        "i = 0\ni += 1\nx = x.cuda(i)\ny = y.cuda(args.gpu)",
    ],
)
def test_a_second_device_is_a_hazard(text: str) -> None:
    assert "DDP102" in body(text)[1]


@pytest.mark.parametrize(
    "line",
    [
        "x = x.to(torch.float64)",
        "x = x.to(device)",
        "x = x.to(other)",
        "x = x.to(args.device)",
        "x = x.cuda('cuda')",
    ],
)
def test_what_is_no_number_stays(line: str) -> None:
    assert body(line) == (line, [])


def test_names_that_give_each_other_end() -> None:
    after, hazards = body(
        "def f(a):\n    return f(b)\n\ndef f(b):\n    return f(a)\n\na = b\nb = a\nx = x.cuda(a)"
    )

    assert (hazards, "x.cuda()" in after) == ([], True)


def test_a_device_is_followed_into_a_module() -> None:
    facts = facts_of(
        HEAD.format("") + "import lib\nlib.T(0)\n",
        lib="class T:\n    def __init__(self, device):\n        self.device = device\n    def f(self, x):\n"
        "        return x.to(self.device)\n",
    )

    (module,) = facts.others
    assert [(use.text, use.index) for use in module.devices] == [("self.device", 0)]


def test_an_origin_says_what_it_knows() -> None:
    script = script_of(
        "import torch\ngpu = 1\nx = gpu\ny = torch.device('cuda:2')\nz = unknown\nx, y, z, gpu"
    )
    names = script.tree.body[-1].value.elts  # type: ignore[attr-defined]

    found = [Origins(script, ()).of(name) for name in names]

    assert [(one.index, one.is_number) for one in found] == [(1, True), (2, False), (None, False), (1, True)]
