"""Forwards that leave traces, on forked ranks that take turns: python turns_program.py FOLDER WORLDS [NAME ...].

Each is run twice by every rank: with replicas of torch's own replicate one after another, and with the wrapper.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import re
import sys
import traceback
import types
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import torch  # noqa: E402
import torch.nn.parallel.replicate  # noqa: E402
from dp2ddp.templates.files import open_by_on_rank0  # noqa: E402
from dp2ddp.templates.turns import WholeBatchInTurns  # noqa: E402
from dp2ddp.templates.writing import WholeBatchPrinting, WholeBatchWriting  # noqa: E402
from forked_ranks import find_on_ranks  # noqa: E402
from reference import Devices, ReferenceDataParallel  # noqa: E402
from scenario_program import RacelessDataParallel  # noqa: E402

from tests.codemod.forward_mutations import ALL, MORE, net_with  # noqa: E402

REPLICATE = sys.modules["torch.nn.parallel.replicate"]
LOSS = "    loss = ((net(x.cuda()) - y.cuda()) ** 2).mean()"
KEPT = net_with("kept_for_the_loss", "self.s.append(self.fc(x))\nscale = 1.0", "[]").text.replace(
    LOSS, f"{LOSS} + sum((each ** 2).sum() for each in net.module.s)\n    del net.module.s[:]"
)
ERROR = net_with(
    "error_of_one", "self.s.append(1)\nif x[0, 0] > 0.9:\n    raise ValueError('two rows')\nscale = 1.0", "[]"
).text.replace(
    LOSS,
    f"    try:\n    {LOSS}\n    except ValueError as error:\n        print(error, len(net.module.s))\n        continue",
)
PRINTS = net_with("prints", "print('rows', len(x))\nscale = 1.0").text
ROUNDS = """x = self.bn(x)
scale = 1.0 + torch.rand(()).item()
if self.bn.num_batches_tracked > {last}:
    self.s.append(scale)
    self.fc.weight.data.mul_(0.9)
scale = scale / (1 + len(self.s))"""
PENALTY = net_with("penalty", "self.s.append(1)\nscale = 1.0", "[]").text.replace(
    LOSS,
    f"{LOSS}\n    (slope,) = torch.autograd.grad(loss, net.module.fc.weight, create_graph=True)\n"
    "    loss = loss + (slope**2).sum()",
)
SOME_WITHOUT_GRADIENT = net_with(
    "some_without_gradient",
    "if x[0, 2] < 0:\n    return self.fc(x).detach()\nscale = self.s.abs()",
    "nn.Parameter(torch.ones(3) + 0j)",
).text
# The data that a forward without gradients assigns stays: replica 0 has the parameters themselves there
ASSIGNS = net_with(
    "assigns",
    "self.s.data = 0.9 * self.s.data + x.detach().mean(0)\nscale = 1.0 + float(self.s.data.sum())\n"
    "for parameter in self.fc.parameters():\n    parameter.data.mul_(0.9)",
    "nn.Parameter(torch.zeros(4), requires_grad=False)",
).text.replace(LOSS, f"    with torch.no_grad():\n        net(x.cuda())\n{LOSS}")
LAYERS = "[]\n        self.bn, self.loss = nn.BatchNorm1d(4), [nn.MSELoss()]"  # the loss keeps nothing
# rank 0's replica alone has the module's buffers, and writes into them in backward
CHECKPOINTED = net_with(
    "checkpointed",
    "self.s.append(1)\nx = torch.utils.checkpoint.checkpoint(self.bn, x, use_reentrant=False)\nscale = 1.0",
    LAYERS,
).text
# A layer behind another one saves its weights for backward, which they must allow after an evaluation, too
EVALUATES = net_with("evaluates", "self.s.append(1)\nx = self.bn(x)\nscale = 1.0", LAYERS).text.replace(
    LOSS, f"    with torch.inference_mode():\n        net(x.cuda())\n{LOSS}"
)
SCRIPTS = {
    **{one.name: one.text for one in (*ALL, *MORE)},
    "kept_for_the_loss": KEPT,
    "penalty": PENALTY,
    "checkpointed": CHECKPOINTED,
    "evaluates": EVALUATES,
    "some_without_gradient": SOME_WITHOUT_GRADIENT,
    "prints": PRINTS,
    "error_of_one": ERROR,
    "left_later": net_with("left_later", ROUNDS.format(last=2), LAYERS).text,
    "left_never": net_with("left_never", ROUNDS.format(last=99), LAYERS).text,
    "assigns": ASSIGNS,
    "only_assigns": ASSIGNS,
    "only_prints": PRINTS,
    "only_writes": net_with("writes", "self.fc.weight.data.mul_(0.9).clamp_(-0.2, 0.2)\nscale = 1.0").text,
}
KINDS = {  # the others take turns
    "only_prints": WholeBatchPrinting,
    "only_writes": WholeBatchWriting,
    "only_assigns": WholeBatchWriting,
}


class TorchsReplicas(ReferenceDataParallel):
    """Replicas as torch makes them, run one after another in one process."""

    def forward(self, *inputs: Any) -> Any:
        scattered = [self.scatter(value) for value in inputs]
        count = len(scattered[0])
        REPLICATE._broadcast_coalesced_reshape = self.broadcast  # type: ignore[attr-defined]
        replicas = REPLICATE.replicate(self.module, range(count), not torch.is_grad_enabled())  # type: ignore[attr-defined]
        outputs, errors = [], []
        for r, replica in enumerate(replicas):
            with self.stream(r):
                try:
                    outputs.append(replica(*(chunks[r] for chunks in scattered)))
                except ValueError as error:
                    errors.append(error)
        if errors:  # all replicas run, and the first one's error is raised
            raise errors[0]
        return self.gather(outputs)

    def broadcast(self, tensors: Any, devices: Any, detach: bool = False) -> Any:
        """What is on one device, on all of them: replica 0's are the tensors themselves."""
        if detach or not tensors:
            return [[tensor if r == 0 else tensor.clone() for tensor in tensors] for r in devices]
        copies = Broadcast.apply(len(devices), *tensors)
        return [copies[r * len(tensors) :][: len(tensors)] for r in devices]


class Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, count: int, *tensors: torch.Tensor) -> Any:
        ctx.count = count
        copies = tuple(t.view_as(t) if r == 0 else t.clone() for r in range(count) for t in tensors)
        frozen = [copy for copy, t in zip(copies, tensors * count, strict=True) if not t.requires_grad]
        ctx.mark_non_differentiable(*frozen)  # as torch's Broadcast does
        return copies

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        size = len(gradients) // ctx.count
        return None, *(sum(gradients[i::size]) for i in range(size))


class ReplicasOfOneProcess(RacelessDataParallel, TorchsReplicas):
    """With streams of their own on the host."""


def run(name: str, text: str, wrap: Any, open_file: Any) -> tuple[str, list[torch.Tensor]]:
    """What a script prints, and its parameters and buffers at the end."""
    home = f"script_{name}"
    module = types.ModuleType(home)
    module.__file__ = str(HERE / f"{home}.py")
    sys.modules[home] = module
    vars(module).update(WRAP=wrap, open=open_file)
    text = text.replace("nn.DataParallel(", "WRAP(").replace(".cuda()", "")
    text = re.sub(r"\b(?:(\w+)\.)?open\(", r"open('\1', ", text)  # gzip.open
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(text, module.__file__, "exec"), vars(module))  # a test's own text
    net = vars(module)["net"]
    return printed.getvalue(), [*net.parameters(), *net.buffers()]


def opener(library: str) -> Any:
    return vars(importlib.import_module(library or "builtins"))["open"]


def compare(name: str, world: int, folder: Path, rank: int) -> dict[str, Any]:
    devices = Devices()
    devices.seed(0)
    text = SCRIPTS[name]
    wanted, numbers = run(
        name,
        text,
        lambda module: ReplicasOfOneProcess(module, devices, world),
        lambda library, path, mode="r": opener(library)(folder / f"{world}_{rank}_{path}", mode),
    )
    found, others = run(
        name,
        text,
        KINDS.get(name, WholeBatchInTurns),
        lambda library, path, mode="r": open_by_on_rank0(opener(library), folder / f"{world}_{path}", mode),
    )
    far = max(float((one - other).abs().max()) for one, other in zip(numbers, others, strict=True))
    return {"wanted": wanted, "found": found, "difference": far}


def find(rank: int, world: int) -> dict[str, Any]:
    folder = Path(sys.argv[1])
    torch.set_default_dtype(torch.float64)
    answers: dict[str, Any] = {}
    for name in sys.argv[3:] or SCRIPTS:
        try:
            answers[name] = compare(name, world, folder, rank)
        except Exception as error:
            answers[name] = {"failed": str(error), "where": traceback.format_exc()}
    return answers


if __name__ == "__main__":
    find_on_ranks(find, Path(sys.argv[1]), sys.argv[2])
