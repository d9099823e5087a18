"""Which wrapper a program gets."""

from __future__ import annotations

import pytest

from dp2ddp.codemod.looks.wrapper import Choice, wrapper
from tests.codemod.programs import program

ORDINARY = """
import copy

import torch
from torch import nn


def train(loader, model, criterion, optimizer):
    model.train()
    for images, target in loader:
        output = model(images.cuda())
        loss = criterion(output, target.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main():
    model = nn.DataParallel(nn.Linear(3, 2)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(3):
        train([], model, nn.CrossEntropyLoss(), optimizer)
        torch.save({"epoch": epoch, "model": model.state_dict()}, "model.pt")


main()
"""
SAVED = 'torch.save({"epoch": epoch, "model": model.state_dict()}, "model.pt")'


def wrapper_of(text: str) -> str:
    return wrapper(program(text)).helper


def test_an_ordinary_script_gets_torchs_own() -> None:
    assert wrapper_of(ORDINARY) == "WholeBatchDDP"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("nn.Linear(3, 2))", "nn.Linear(3, 2), device_ids=[0, 1])"),
        ("loss.backward()", "loss.backward()\n        nn.utils.clip_grad_norm_(model.parameters(), 1.0)"),
        ("\n\nmain()\n", "\n\ntry:\n    main()\nexcept KeyboardInterrupt:\n    pass\n"),
        (
            "\n\ndef main",
            "\n\ndef is_it(model):\n    return isinstance(model, nn.DataParallel)\n\n\ndef main",
        ),
        ("SGD(model.parameters()", "SGD(filter(lambda p: p.requires_grad, model.parameters())"),
        (
            "    model = nn.DataParallel(nn.Linear(3, 2)).cuda()\n    optimizer = torch.optim.SGD(model.",
            "    net = nn.Linear(3, 2)\n    model = nn.DataParallel(net)\n    optimizer = torch.optim.SGD(net.",
        ),
        ("criterion(output", "criterion(output.gather(1, target)"),
        ("        loss.backward()", "        if train:\n            loss.backward()"),
        ("    for images, target in loader:", "    with torch.enable_grad():"),
        ("    for images, target in loader:", "    if True:"),
    ],
)
def test_it_stays_ordinary(old: str, new: str) -> None:
    assert old in ORDINARY
    assert wrapper_of(ORDINARY.replace(old, new, 1)) == "WholeBatchDDP"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # gradients that DistributedDataParallel does not see
        ("backward()", "backward(retain_graph=True)"),
        ("loss.backward()", "loss.backward(); loss.backward()"),
        ("loss.backward()", "torch.autograd.grad(loss, images); loss.backward()"),
        ("backward()", "backward(loss)"),
        ("    model.train()", "    model.fc.weight.register_hook(print)"),
        ("    model.train()", "    wandb.watch(model)"),
        ("    model.train()", "    model.fc.weight.requires_grad = False"),
        ("nn.Linear(3, 2)", "nn.Embedding(3, 2, sparse=True)"),
        ("    model.train()", "    torch.autograd.Function.apply(model)"),
        # inputs that want gradients
        (
            "0.1)",
            "0.1)\n    codes = nn.Embedding(9, 3)\n    optimizer.add_param_group({'params': codes.parameters()})",
        ),
        # other parameters than at the wrap
        (
            "    model.train()",
            "    from torch.nn.utils import prune\n    prune.l1_unstructured(model.module, 'weight', 0.4)",
        ),
        ("    model.train()", "    nn.utils.parametrize.remove_parametrizations(model.module, 'weight')"),
        ("    model.train()", "    model.module.head = nn.Linear(2, 5)"),
        # other sums
        ("loss = criterion(output", "loss = criterion(output + model(images)"),
        ("loss = criterion(output", "loss = criterion(output + model.module.encode(images)"),
        ("loss.backward()", "(loss + sum(p.norm() for p in model.parameters())).backward()"),
        ("        optimizer.zero_grad()", "        if last:\n            optimizer.zero_grad()"),
        ("        optimizer.zero_grad()\n", ""),
        ("        loss.backward()", "        for _ in range(2):\n            loss.backward()"),
        ("output = model(images.cuda())", "output = sum(model(each) for each in images) + model(images)"),
        ("        output = model", "        for each in images:\n            output = model"),
        ("        output = model", "        with torch.cuda.amp.autocast():\n            output = model"),
        (
            "        loss.backward()",
            "        from apex import amp\n        with amp.scale_loss(loss, optimizer) as scaled:\n"
            "            scaled.backward()",
        ),
        # other wraps
        ("nn.Linear(3, 2))", "nn.Linear(3, 2), dim=1)"),
        ("nn.Linear(3, 2))", "nn.Linear(3, 2), *ids)"),
        ("    optimizer =", "    other = nn.DataParallel(model)\n    optimizer ="),
        ("model = nn.DataParallel(nn.Linear(3, 2)).cuda()", "network = nn.DataParallel(nn.Linear(3, 2))"),
        ("nn.DataParallel(nn.Linear", "make(nn.DataParallel, nn.Linear"),
        ("\n\ndef main", "\n\nclass Own(nn.DataParallel):\n    pass\n\n\ndef main"),
        ("range(3)", "model.device_ids"),
        ("model.state_dict()}", "model}"),
        (SAVED, 'state = {"model": model}\n        torch.save(state, "model.pt")'),
        (SAVED, 'state = dict(model=model)\n        torch.save(state, "model.pt")'),
        (SAVED, 'state = {}\n        state["model"] = model\n        torch.save(state, "model.pt")'),
        ("    model.train()\n", "    model.train()\n    ema = copy.deepcopy(model)\n"),
        ("    model.train()", "    from timm.utils import ModelEmaV2\n    ema = ModelEmaV2(model)"),
        (
            "def main():\n",
            "def save(path, net):\n    torch.save(net, path)\n\n\ndef main():\n    save('model.pt', model)\n",
        ),
    ],
)
def test_what_torchs_own_is_not_for(old: str, new: str) -> None:
    assert old in ORDINARY
    text = ORDINARY.replace(old, new, 1)
    several = text.count("nn.DataParallel") > 1
    assert wrapper_of(text) == ("WholeBatch" if several else "WholeBatchParallel")


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("3)", "3)", Choice.ONE_PLAIN_STEP),
        ("backward()", "backward(retain_graph=True)", Choice.OTHER_GRADIENTS),
        ("nn.Linear(3, 2))", "nn.Linear(3, 2), dim=1)", Choice.OTHER_WRAP),
        ("0.1)", "0.1); Adam(other.parameters())", Choice.TRAINS_MORE),
        ("model.state_dict()}", "model}", Choice.COPIED_WHOLE),
        ("        optimizer.zero_grad()\n", "", Choice.OTHER_STEP),
    ],
)
def test_the_reason_says_which_condition_does_not_hold(old: str, new: str, why: Choice) -> None:
    assert wrapper(program(ORDINARY.replace(old, new, 1))) is why


def test_where_a_rank_might_go_on_without_the_others_they_share_errors() -> None:
    """Also where the rest is not ordinary."""
    caught = (
        "        try:\n            output = model(images)\n        except RuntimeError:\n            continue"
    )
    text = ORDINARY.replace("        output = model(images.cuda())", caught)
    assert wrapper_of(text) == "WholeBatchSharingErrors"
    twice = "loss.backward()\n        loss.backward()"
    assert wrapper_of(text.replace("loss.backward()", twice)) == "WholeBatchSharingErrors"


@pytest.mark.parametrize(
    ("inside", "expected"),
    [
        ("print(text)", "WholeBatchDDP"),
        ("note(text)", "WholeBatchDDP"),
        ("text(1)", "WholeBatchSharingErrors"),
        ("note(text); main()", "WholeBatchSharingErrors"),
    ],
)
def test_functions_that_call_no_model_are_tried_alone(inside: str, expected: str) -> None:
    """`try: load_checkpoint(); log("resumed")`, and begin anew without one."""
    log = f"def note(text):\n    print(text)\n\n\ndef log(text):\n    {inside}\n\n\ndef main():\n"
    tried = "    try:\n        log('resumed')\n    except:\n        pass\n    model.train()\n"
    text = ORDINARY.replace("def main():\n", log, 1).replace("    model.train()\n", tried, 1)
    assert wrapper_of(text) == expected


def test_copies_of_the_state_are_none_of_the_model() -> None:
    text = ORDINARY.replace(
        "    model.train()\n", "    model.train()\n    best = copy.deepcopy(model.state_dict())\n"
    )
    assert wrapper_of(text) == "WholeBatchDDP"


def test_a_forward_that_fills_a_list_takes_turns() -> None:
    module = (
        "seen = []\n\n\nclass Net(nn.Module):\n    def forward(self, x):\n        return seen.append(x)\n"
    )
    text = ORDINARY.replace("nn.Linear(3, 2)", "Net()").replace("\n\ndef train", f"\n\n{module}\n\ndef train")
    assert wrapper_of(text) == "WholeBatchInTurns"


NET = """
class Loss:
    def __init__(self):
        self.center = torch.zeros(3)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.threshold, self.center = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(3))
    def forward(self, x):
        {body}
        return x


def train"""


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ("print(x.shape)", "WholeBatchPrinting"),
        ("print(x.shape, file=LOG)", "WholeBatchInTurns"),
        ("print(x.shape)\n        SEEN.append(1)", "WholeBatchInTurns"),
        ("self.fc.weight.data.clamp_(0)", "WholeBatchWriting"),
        ("for m in self.modules():\n            m.weight.data.clamp_(0)", "WholeBatchWriting"),
        ("self.threshold.data.fill_(0)", "WholeBatchWriting"),
        ("self.center.data.fill_(0)", "WholeBatchInTurns"),  # a plain tensor, in another class
        ("for m in NETS:\n            m.weight.data.clamp_(0)", "WholeBatchInTurns"),
        ("self.queue.data.mul_(0.5)", "WholeBatchInTurns"),
        ("self.fc.weight.data.clamp_(0)\n        print(1)", "WholeBatchInTurns"),
    ],
)
def test_forwards_that_only_print_or_only_write_weights_take_no_turns(body: str, name: str) -> None:
    text = ORDINARY.replace("\ndef train", "\nSEEN, NETS, LOG = [], [], None\n" + NET.format(body=body))
    assert wrapper_of(text.replace("nn.Linear(3, 2)", "Net()")) == name


@pytest.mark.parametrize(
    ("lines", "is_large"),
    [
        ("up = torch.nn.ConvTranspose2d(2, 2, 2)", True),
        (
            "class Up(torch.nn.Module):\n    def forward(self, x):\n        return torch.nn.functional.interpolate(x)",
            True,
        ),
        (
            "class Data:\n    def __getitem__(self, i):\n        return torch.nn.functional.interpolate(x)",
            False,
        ),
        ("loss = criterion(output.view(-1, words), targets)", True),
        ("x = layer(x.view(-1, 320))", False),
        ("x = torch.nn.functional.batch_norm(x.view(-1, 8, 4, 4), mean, variance)", False),
    ],
)
def test_outputs_of_pixels_and_tokens_stay_in_parts(lines: str, is_large: bool) -> None:
    text = f"import torch\nnet = torch.nn.DataParallel(torch.nn.Linear(2, 2))\n{lines}\n"
    assert (wrapper_of(text) == "WholeBatchInParts") is is_large


OF_LIBRARY = """
import timm
from torch import nn
from torchvision import models
class Net(nn.Module):
    def __init__(self, name, given):
        super().__init__()
        self.backbone = MADE
    def forward(self, x):
        return self.backbone.forward_features(x)
net = nn.DataParallel(Net("vit", []))
"""


@pytest.mark.parametrize(
    ("made", "fills"),
    [
        ("timm.create_model(name)", False),
        ("getattr(models, name)(True).eval() if name else None", False),
        ("models.__dict__[name]()", False),
        ("given", True),
        ("given or nn.Linear(2, 2)", True),
        ("make(name)", True),
    ],
)
def test_methods_of_a_librarys_layers_are_forwards_of_its_own(made: str, fills: bool) -> None:
    assert (wrapper_of(OF_LIBRARY.replace("MADE", made)) == "WholeBatchInTurns") is fills
