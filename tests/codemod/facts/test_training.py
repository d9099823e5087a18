"""When DDP's reducer is proven, and the first thing that speaks against it."""

from __future__ import annotations

import pytest

from tests.codemod.scripts import facts_of

HEAD = "import torch\nnet = torch.nn.DataParallel(Net())\n"
LOOP = """
for x, y in loader:
    opt.zero_grad()
    loss = criterion(net(x), y)
    loss.backward()
    opt.step()
"""


def stopper(text: str) -> str | None:
    return facts_of(text).training.reducer_stopper


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(HEAD + LOOP, id="the plain loop"),
        pytest.param(HEAD + LOOP.replace("loss.backward()", "scaler.scale(loss).backward()"), id="scaled"),
        pytest.param(HEAD + LOOP + "with torch.no_grad():\n    print(net(x))\n", id="evaluation beside it"),
        pytest.param(HEAD + LOOP + "torch.save(net.module.state_dict(), 'a')\n", id="module for its state"),
        pytest.param(
            HEAD + LOOP + "raw = net.module if many else net\nraw.state_dict()\n", id="module by a name"
        ),
        pytest.param(
            "import torch\ndef train(model, loader, opt):"
            + LOOP.replace("net(x)", "model(x)").replace("\n", "\n    ")
            + "\nnet = torch.nn.DataParallel(Net())\ntrain(net, loader, opt)\n",
            id="handed to a function",
        ),
        pytest.param(
            HEAD + "for p in net.parameters():\n    p.requires_grad = False\n" + LOOP,
            id="frozen before the loop",
        ),
        pytest.param(
            "import torch\nnet = Net()\nopt = torch.optim.SGD(net.head.parameters())\n"
            + HEAD.partition("\n")[2].replace("Net()", "net")
            + LOOP,
            id="looked into before it is wrapped",
        ),
        pytest.param(
            HEAD
            + LOOP.replace("    loss.b", "    if train:\n      loss.b").replace("    opt.s", "      opt.s"),
            id="one phase of a loop that trains and evaluates",
        ),
        pytest.param(
            HEAD
            + "opt = torch.optim.SGD(net.module.fc[0].parameters())\nn = net.module.fc.weight.data.norm()\n"
            + LOOP,
            id="parts of the module for their parameters",
        ),
        pytest.param(
            HEAD
            + "opt = torch.optim.SGD(u)\nplan = torch.optim.lr_scheduler.StepLR(opt, 1)\n"
            + LOOP
            + "    plan.step()\n",
            id="a schedule steps, too",
        ),
        pytest.param(
            HEAD + LOOP.replace("    opt.s", "    if loss < 9:\n        opt.s"),
            id="a step that may be skipped",
        ),
        pytest.param(
            HEAD
            + "params = list(net.parameters())\nopt = torch.optim.SGD(params)\n"
            + LOOP.replace("    opt.s", "    torch.nn.utils.clip_grad_norm_(params, 1)\n    opt.s"),
            id="a list that has a name, clipped",
        ),
        pytest.param(
            HEAD
            + LOOP.replace(
                "    opt.s",
                "    for p in net.parameters():\n        p.grad.data.clamp_(-1, 1)\n"
                "    torch.nn.utils.clip_grad_norm_(net.parameters(), 1)\n    opt.s",
            ),
            id="gradients edited behind backward",
        ),
        pytest.param(
            HEAD
            + LOOP.replace(
                "    opt.z",
                "    for m in net.modules():\n        if isinstance(m, torch.nn.BatchNorm2d):\n"
                "            m.eval()\n            if hasattr(m.weight, 'data'):\n"
                "                m.weight.data.clamp_(0, 1)\n    opt.z",
            ),
            id="layers set to evaluation in the loop",
        ),
        pytest.param(
            HEAD
            + "class Mine(torch.optim.SGD):\n    pass\nopt = Mine(net.parameters())\n"
            + "class EMA:\n    def __init__(self, p):\n        self.p = list(p)\nema = EMA(net.parameters())\n"
            + LOOP
            + "    ema.update()\n",
            id="an optimizer and an average of their own",
        ),
        pytest.param(
            "import torch\nclass Head(torch.nn.Module):\n    pass\nhead = Head()\n"
            + "net = torch.nn.DataParallel(torch.nn.Sequential(torch.nn.Linear(1, 1), head))\n"
            + LOOP.replace("    opt.z", "    head.train()\n    opt.z"),
            id="a part that has a name, set to training",
        ),
        pytest.param(
            HEAD
            + LOOP.replace(
                "    loss = criterion(net(x), y)",
                "    if a:\n        o = net(x)\n    else:\n        o = net(-x)",
            ),
            id="one of two forwards",
        ),
        pytest.param(
            "import torch\nclass Net(torch.nn.Module):\n    def freeze_bn(self):\n"
            "        for layer in self.modules():\n            layer.eval()\n"
            + HEAD.partition("\n")[2]
            + LOOP.replace("    opt.z", "    net.module.freeze_bn()\n    opt.z"),
            id="a method of the module that runs no layer",
        ),
        pytest.param(
            HEAD
            + "def accumulate(a, b):\n    old, new = dict(a.named_parameters()), dict(b.named_parameters())\n"
            "    for k in old:\n        old[k].data.mul_(0.9).add_(new[k].data, alpha=0.1)\n"
            + LOOP
            + "    accumulate(average, net.module)\n",
            id="an average that reads data",
        ),
        pytest.param(
            HEAD + LOOP + "    print(net.module.W)\n    log.info('%s', net.module.W)\n", id="a weight is told"
        ),
        pytest.param(
            HEAD
            + LOOP
            + "    inner = net.module if hasattr(net, 'module') else net\n    f = inner.state_dict()\n",
            id="the inner module, if there is one",
        ),
        pytest.param(
            HEAD + LOOP + "state = {'net': net.module if many else net, 'acc': 1}\ntorch.save(state, 'a')\n",
            id="saved in a dict",
        ),
        pytest.param(
            HEAD
            + "def save(state, best):\n    torch.save(state, 'a')\n"
            + LOOP
            + "save({'net': net.module}, True)\n",
            id="saved in a dict, by a function",
        ),
        pytest.param(
            HEAD
            + "def fit():\n    some, sizes = 1, 2\n    trained = []\n    for p in filter(f, net.parameters()):\n"
            "        trained.append(p)\n    opt = torch.optim.SGD(trained, lr=1)\n"
            + LOOP.replace("\n", "\n    ")
            + "\nfit()\n",
            id="collected in a list for the optimizer",
        ),
        pytest.param(
            HEAD
            + "def make(model):\n    if isinstance(model, torch.nn.DataParallel):\n        model = model.module\n"
            "    base = []\n    for _, part in model.named_children():\n        base += list(part.parameters())\n"
            "    groups = [{'params': base, 'lr': 1}]\n    return torch.optim.SGD(groups)\n"
            + "opt = make(net)\n"
            + LOOP,
            id="groups of parameters that are added up",
        ),
        pytest.param(HEAD + LOOP + "    net.module.drop = 0.2 * i / n\n", id="a number of the module is set"),
        pytest.param(
            HEAD
            + "head = torch.nn.DataParallel(Head())\n"
            + LOOP.replace("criterion(net(x), y)", "criterion(head(net(x)), y)"),
            id="two models, each run once for one loss",
        ),
        pytest.param(
            "import torch\nif small:\n    net = torch.nn.DataParallel(Net())\nelse:\n"
            "    net = torch.nn.DataParallel(Net(2))\n" + LOOP,
            id="two wraps, one of which runs",
        ),
        pytest.param(
            HEAD
            + "def test(model):\n    return model(z)\n"
            + LOOP
            + "    with torch.no_grad():\n        test(net)\n",
            id="a test in a function that is called without gradients",
        ),
        pytest.param(
            "import torch\nclass Net(torch.nn.Module):\n    def __str__(self):\n"
            "        return str(sum(p.numel() for p in self.parameters()))\n"
            + HEAD.partition("\n")[2]
            + LOOP,
            id="parameters are counted when it is told",
        ),
    ],
)
def test_it_is_proven(text: str) -> None:
    assert stopper(text) is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param(HEAD, "there is no backward()", id="no backward"),
        pytest.param(HEAD + LOOP + LOOP, "several backward()s", id="two loops"),
        pytest.param(
            HEAD + LOOP.replace("backward()", "backward(retain_graph=True)"),
            "has arguments",
            id="retain_graph",
        ),
        pytest.param(HEAD + LOOP.replace("net(x)", "net(x) + net(-x)"), "2 forwards", id="two forwards"),
        pytest.param(
            HEAD
            + LOOP.replace("    opt.zero_grad()\n", "").replace(
                "    opt.step()", "    if i % 4 == 0:\n        opt.step()\n        opt.zero_grad()"
            ),
            "condition",
            id="accumulation",
        ),
        pytest.param(
            HEAD + LOOP.replace("    opt.zero_grad()\n", ""), "zero_grad() is not called", id="no zero_grad"
        ),
        pytest.param(
            HEAD + LOOP.replace("net(x)", "net.module.encode(x)"),
            "net.module.encode",
            id="around the wrapper",
        ),
        pytest.param(
            HEAD + LOOP + "net.module.fc = torch.nn.Linear(1, 1)\n", "net.module.fc", id="a part replaced"
        ),
        pytest.param(
            HEAD.replace("net =", "class T:\n    def __init__(self):\n        self.net =")
            + LOOP.replace("net(x)", "t.net(x) + t.net(-x)"),
            "2 forwards",
            id="through an object",
        ),
        pytest.param(
            HEAD
            + "params = [p for p in net.parameters()]\n"
            + LOOP.replace("    loss.b", "    loss = loss + sum(p.norm() for p in params)\n    loss.b"),
            "a penalty?",
            id="a penalty on a list that has a name",
        ),
        pytest.param(
            HEAD
            + LOOP.replace(
                "    loss.b",
                "    for p in net.parameters():\n        loss = loss + p.clone().norm()\n    loss.b",
            ),
            "a penalty?",
            id="a penalty on copies, which have a graph",
        ),
        pytest.param(
            HEAD
            + LOOP.replace(
                "    loss.b", "    for m in net.modules():\n        loss = loss + m.weight.norm()\n    loss.b"
            ),
            "a penalty?",
            id="a penalty on the layers",
        ),
        pytest.param(
            HEAD
            + "layers = list(net.children())\n"
            + LOOP.replace("    loss.b", "    loss = loss + layers[0].weight.norm()\n    loss.b"),
            "a penalty?",
            id="a penalty on layers that have a name",
        ),
        pytest.param(
            HEAD
            + "class Reg:\n    def __init__(self, p):\n        self.p = list(p)\n    def __call__(self):\n"
            + "        return sum(one.norm() for one in self.p)\nreg = Reg(net.parameters())\n"
            + LOOP.replace("    loss.b", "    loss = loss + reg()\n    loss.b"),
            "what holds parameters",
            id="a penalty in an object",
        ),
        pytest.param(
            HEAD
            + "weights = {name: p for name, p in net.named_parameters()}\n"
            + LOOP.replace("    loss.b", "    loss = loss + weights['fc'].norm()\n    loss.b"),
            "what holds parameters",
            id="a penalty out of a dict",
        ),
        pytest.param(
            HEAD
            + "weights = []\nfor name, p in net.named_parameters():\n    weights.append(p)\n"
            + LOOP.replace("    loss.b", "    loss = loss + weights[0].norm()\n    loss.b"),
            "what holds parameters",
            id="a penalty on what a loop has collected",
        ),
        pytest.param(
            "import torch\nclass Head(torch.nn.Module):\n    pass\nhead = Head()\n"
            + "net = torch.nn.DataParallel(torch.nn.Sequential(torch.nn.Linear(1, 1), head).cuda())\n"
            + LOOP.replace("    loss.b", "    loss = loss + head.weight.norm()\n    loss.b"),
            "`head` is used beside",
            id="a part that had a name before",
        ),
        pytest.param(
            "import torch\nraw = Net()\nhead = raw.head\nnet = torch.nn.DataParallel(raw)\n"
            + LOOP.replace("    loss.b", "    loss = loss + head.weight.norm()\n    loss.b"),
            "`head` is used beside",
            id="a part that is given a name",
        ),
        pytest.param(HEAD + LOOP + "helper(net)\n", "`helper(net)`", id="given away"),
        pytest.param(
            HEAD + LOOP + "    for p in net.parameters():\n        p.requires_grad = False\n",
            "frozen",
            id="frozen in the loop",
        ),
        pytest.param(
            HEAD
            + "def thaw():\n    head.requires_grad_(True)\n"
            + LOOP.replace("    loss.b", "    thaw()\n    loss.b"),
            "frozen",
            id="thawed by a function that the loop calls",
        ),
        pytest.param(
            HEAD + "for p in net.parameters():\n    p.register_hook(lambda g: g.clamp(-1, 1))\n" + LOOP,
            "register_hook",
            id="a hook on a parameter sees gradients times the world",
        ),
        pytest.param(
            HEAD + "def again(l):\n    run = getattr(l, 'backward')\n    run()\n" + LOOP,
            "by its name",
            id="a second backward by its name",
        ),
        pytest.param(HEAD + "run = loss.backward\n" + LOOP, "handed on", id="backward is handed on"),
        pytest.param(
            HEAD
            + "def second(m, x):\n    return m(x)\n"
            + LOOP.replace("net(x), y)", "net(x), y) + second(net, x)"),
            "another forward",
            id="a second forward in a function",
        ),
        pytest.param(
            HEAD
            + "class Extra(torch.nn.Module):\n    def __init__(self, net):\n        self.net = net\n"
            + "    def forward(self, x):\n        return self.net(x)\nextra = Extra(net)\n"
            + LOOP.replace("net(x), y)", "net(x), y) + extra(x)"),
            "another forward",
            id="a second forward in a loss module",
        ),
        pytest.param(
            HEAD
            + LOOP.replace(
                "    loss.b", "    loss = loss + sum(p.norm() for p in net.parameters())\n    loss.b"
            ),
            "a penalty?",
            id="a penalty on the weights",
        ),
        pytest.param(
            HEAD.replace(
                "net = torch.nn.DataParallel(Net())", "raw = Net()\nnet = torch.nn.DataParallel(raw.cuda())"
            )
            + LOOP.replace("net(x), y)", "net(x), y) + raw.fc.weight.norm()"),
            "beside the wrapper",
            id="the raw model in the loss",
        ),
        pytest.param(
            HEAD
            + "a, b = 1, 2\none = torch.optim.SGD(u)\ntwo = torch.optim.SGD(v)\n"
            + LOOP.replace("opt.z", "one.z").replace("opt.s", "two.s"),
            "not cleared",
            id="an optimizer that is not cleared",
        ),
        pytest.param(HEAD + LOOP + "e = torch.nn.Embedding(9, 2, sparse=True)\n", "sparse", id="sparse"),
        pytest.param(HEAD + LOOP + "net2 = torch.nn.Linear(1, 1).half()\n", "half", id="half precision"),
        pytest.param(
            HEAD + LOOP + "torch.autograd.grad(loss, w)\n", "torch.autograd.grad()", id="autograd.grad"
        ),
        pytest.param(
            "from torch.utils.checkpoint import checkpoint\n" + HEAD + LOOP + "checkpoint(f, x)\n",
            "checkpoint",
            id="checkpoint",
        ),
        pytest.param(
            HEAD
            + "head = torch.nn.DataParallel(Head())\n"
            + LOOP.replace("criterion(net(x), y)", "criterion(head(net(x)) + head(x), y)"),
            "2 forwards",
            id="two models, one of which runs twice",
        ),
        pytest.param(
            "import torch\nclass Net(torch.nn.Module):\n    def encode(self, x):\n        return super().forward(x)\n"
            + HEAD.partition("\n")[2]
            + LOOP.replace("net(x), y", "net(x), net.module.encode(x)"),
            "net.module.encode",
            id="a method of the module that runs its base's layers",
        ),
        pytest.param(
            HEAD + "w = net.module.W\n" + LOOP.replace("net(x), y)", "net(x), y) + w.norm()"),
            "net.module.W",
            id="a weight in the loss, by a name",
        ),
        pytest.param(
            HEAD
            + "def decay(model):\n    total = 0\n    for p in model.parameters():\n        total = total + p.norm()\n"
            "    return total\n" + LOOP.replace("net(x), y)", "net(x), y) + decay(net.module)"),
            "decay(net.module)",
            id="a penalty in a function that is given the module",
        ),
        pytest.param(
            HEAD
            + LOOP.replace(
                "    loss.b", "    for p in net.module.parameters():\n        loss += p.norm()\n    loss.b"
            ),
            "net.module.parameters",
            id="a penalty that is added up",
        ),
        pytest.param(
            HEAD + "def run(m):\n    return m(x)\n" + LOOP + "    run(net.module)\n",
            "run(net.module)",
            id="a function that runs what it is given",
        ),
        pytest.param(
            HEAD
            + "def test(model):\n    return model(z)\n"
            + LOOP.replace("    loss.b", "    loss = loss + test(net)\n    loss.b")
            + "with torch.no_grad():\n    test(net)\n",
            "another forward",
            id="a function that is called without gradients, and with them",
        ),
        pytest.param(
            HEAD.replace("net =", "net.features =") + LOOP, "a part of a model", id="part of a model"
        ),
    ],
)
def test_it_is_not_proven(text: str, why: str) -> None:
    assert why in (stopper(text) or "")


TRAINER = """
import torch
class Trainer:
    def __init__(self, net, opt):
        self.net, self.opt = net, opt
    def run(self, loader):
        for x, y in loader:
            self.opt.zero_grad()
            loss = criterion(self.net(x), y)
            loss.backward()
            self.opt.step()
def build():
    net = torch.nn.DataParallel(Net())
    return net, "name"
net, name = build()
Trainer(net, torch.optim.SGD(net.parameters())).run(loader)
"""


def test_models_are_followed_through_tuples() -> None:
    assert stopper(TRAINER) is None
    twice = TRAINER.replace("criterion(self.net(x), y)", "criterion(self.net(x), y) + self.net(-x).mean()")
    assert "2 forwards" in (stopper(twice) or "")


def test_a_model_that_is_handed_to_any_number_of_arguments_is_not_followed() -> None:
    text = HEAD + "def show(*models):\n    models[0](x).sum()\nshow(net)\n" + LOOP
    assert "not followed" in (stopper(text) or "")


@pytest.mark.parametrize(
    "text",
    [
        "core = getattr(net, 'module', net)\ncore(x)\n",
        "getattr(net, name)(x)\n",
        "bag = dict(model=net)\nbag['model'](x)\n",
        "setattr(state, 'model', net)\nstate.model(x)\n",
        "for out in map(net, batches):\n    print(out)\n",
        "def run(**all):\n    all['model'](x)\nrun(model=net)\n",
        "def run(a, b):\n    b(x)\nrun(*first, net)\n",
    ],
)
def test_builtins_that_hand_a_model_on_are_not_followed(text: str) -> None:
    assert "not followed" in (stopper(HEAD + LOOP + text) or "")


def test_the_module_by_getattr_is_known_where_only_its_state_is_asked_for() -> None:
    assert stopper(HEAD + LOOP + "torch.save(getattr(net, 'module', net).state_dict(), 'a')\n") is None


def test_names_of_other_functions_are_other_models() -> None:
    text = HEAD + LOOP + "def other(net):\n    for one in net:\n        one / 2\nother([1, 2])\n"
    assert stopper(text) is None
