"""DDP908: what a forward keeps for the next one, or for the rest of the script."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard, Note
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.rule import Flags, Notes, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class MemoryOfForward(Rule):
    """Say where a forward fills a list, a dict or a counter that the next one or the rest of the script reads.

    ## What it does
    A note where a forward, or a forward hook of a part of the model, changes a container or an object that outlives
    the call and that is read outside, or by the next forward; the wrapper is `InTurnDDP`. A hazard for plain globals,
    attributes of classes, iterators, and what backward hooks keep, which cannot be followed, and where DataParallel is
    subclassed or taken apart.

    ## Why
    DataParallel's replicas are threads of one process: all W of them fill the same list. With `InTurnDDP` each rank
    gets it as the rank before has left it, and all go on with what the last one left; tensors keep their gradients.

    ## Safety
    Attributes of the module that are set anew in each forward, and buffers, behave as under DataParallel and need no
    turns. Neither does a cache that only forwards read, and whose entries follow from their keys.

    ## References
    docs/semantics.md#replicas.
    """

    code = "DDP908"
    name = "memory-of-forward"
    nodes = ("Assign", "AugAssign", "Call")
    examples = (
        Notes(
            before="""
                import torch
                sizes = []
                class Net(torch.nn.Module):
                    def forward(self, x):
                        sizes.append(len(x))
                        return x
                net = torch.nn.DataParallel(Net())
                print(sum(sizes))
            """,
            message="`sizes` is filled in the forward",
        ),
        Notes(
            before="""
                import torch
                class Net(torch.nn.Module):
                    def __init__(self):
                        super().__init__()
                        self.codebook = torch.nn.Parameter(torch.ones(4))
                    def forward(self, x):
                        self.codebook.data.mul_(0.9)
                        return x * self.codebook
                net = torch.nn.DataParallel(Net())
            """,
            message="the forward writes to parameters through .data",
        ),
        Notes(
            before="""
                import torch
                class Net(torch.nn.Module):
                    def __init__(self):
                        self.stats = {"rows": 0}
                    def forward(self, x):
                        self.stats["rows"] += len(x)
                        return x
                net = torch.nn.DataParallel(Net())
                print(net.module.stats)
            """,
            message="`self.stats` is filled in the forward",
        ),
        Flags(
            before="""
                import torch
                calls = 0
                class Net(torch.nn.Module):
                    def forward(self, x):
                        global calls
                        calls += 1
                        return x
                net = torch.nn.DataParallel(Net())
                print(calls)
            """,
            message="`calls` is filled in the forward",
        ),
        Flags(
            before="""
                import torch
                class Net(torch.nn.Module):
                    calls = 0
                    def forward(self, x):
                        Net.calls += 1
                        return x
                net = torch.nn.DataParallel(Net())
                print(Net.calls)
            """,
            message="`Net.calls` is filled in the forward",
        ),
        Notes(
            before="""
                import torch
                seen = {}
                net = torch.nn.Linear(2, 2)
                net.register_forward_hook(lambda m, i, o: seen.update(out=o))
                net = torch.nn.DataParallel(net)
                print(seen["out"])
            """,
            message="`seen` is filled in the forward",
        ),
        Notes(
            before="""
                import torch
                activation = {}
                def keep(name):
                    def hook(module, given, output):
                        activation[name] = output.detach()
                    return hook
                net = torch.nn.Linear(2, 2)
                net.register_forward_hook(keep("fc"))
                net = torch.nn.DataParallel(net)
                print(activation["fc"])
            """,
            message="`activation` is filled",
        ),
        Notes(
            before="""
                import torch
                class Keep:
                    def __init__(self, layer):
                        layer.register_forward_hook(self.hook)
                    def hook(self, module, given, output):
                        self.features = output
                net = torch.nn.Linear(2, 2)
                kept = Keep(net)
                net = torch.nn.DataParallel(net)
                print(kept.features)
            """,
            message="`self.features` is filled",
        ),
        Notes(
            before="""
                import torch
                class Meter:
                    def update(self, value):
                        self.sum = value
                class Net(torch.nn.Module):
                    def __init__(self):
                        self.meter = Meter()
                    def forward(self, x):
                        self.meter.update(float(x.sum()))
                        return x
                net = torch.nn.DataParallel(Net())
                print(net.module.meter.sum)
            """,
            message="`self.meter` is filled",
        ),
        Notes(
            before="""
                import torch
                class Save:
                    def __init__(self):
                        self.outputs = []
                    def __call__(self, module, given, output):
                        self.outputs.append(output)
                save = Save()
                net = torch.nn.Linear(2, 2)
                net.register_forward_hook(save)
                net = torch.nn.DataParallel(net)
                print(save.outputs)
            """,
            message="`self.outputs` is filled",
        ),
        Flags(
            before="""
                import torch
                gradients = []
                net = torch.nn.Linear(2, 2)
                net.register_full_backward_hook(lambda module, given, wanted: gradients.append(wanted[0]))
                net = torch.nn.DataParallel(net)
                print(gradients)
            """,
            message="`gradients` is filled",
        ),
        Notes(
            before="""
                import torch
                class Net(torch.nn.Module):
                    def __init__(self):
                        self.state = {"calls": 0}
                    def forward(self, x):
                        self.state["calls"] += 1
                        return x / self.state["calls"]
                net = torch.nn.DataParallel(Net())
            """,
            message="`self.state` is filled in the forward and read by the next",
        ),
        Flags(
            before="""
                import itertools
                import torch
                class Net(torch.nn.Module):
                    def __init__(self):
                        self.scales = itertools.cycle([1, 2, 3])
                    def forward(self, x):
                        return x * next(self.scales)
                net = torch.nn.DataParallel(Net())
            """,
            message="`self.scales` is filled in the forward of a model and read by the next",
        ),
        Flags(
            before="""
                import torch
                class Mine(torch.nn.DataParallel):
                    pass
                class Net(torch.nn.Module):
                    def forward(self, x):
                        self.codebook.data[0].mul_(0.9)
                        return x - self.codebook[0]
                net = Mine(Net())
            """,
            message="only rank 0 would keep it",
        ),
        Untouched(
            """
                import torch
                cache = {}
                class Net(torch.nn.Module):
                    def forward(self, x):
                        parts = []
                        parts.append(x)
                        cache[len(x)] = 1
                        self.rows = len(cache)
                        x.kept = True
                        return parts
                net = torch.nn.DataParallel(Net())
                parts = net(x)
                print(parts, net.module.rows, parts.kept)
            """
        ),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        for kept in facts.forward_state if facts.all_wraps else ():
            reader = "read outside" if kept.is_read_outside else "read by the next"
            if kept.is_reached and facts.can_keep_rank_order:
                yield Note(
                    kept.node, f"`{kept.name}` is filled in the forward and {reader}: ranks take turns"
                )
            else:
                yield Hazard(
                    kept.node,
                    f"`{kept.name}` is filled in the forward of a model and {reader}: a rank would fill its own",
                    "let the forward return it, and fill it behind the forward"
                    if kept.is_read_outside
                    else "change it in the loop, and pass it in; or keep it in a list or dict of the module",
                )
        for node in facts.data_writes if facts.all_wraps else ():
            if facts.can_keep_rank_order:
                yield Note(node, "the forward writes to parameters through .data: ranks take turns")
            else:
                yield Hazard(
                    node,
                    "the forward writes to parameters through .data: only rank 0 would keep it",
                    "make it a buffer (register_buffer), or write it behind the forward",
                )
