"""DDP504: TensorBoard, W&B and other trackers."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard, InsertAfter, InsertBefore, Lift, PassTo
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.effects import STARTS_TRAINING
from dp2ddp.codemod.facts.libraries import TrackerImport, tracker_imports
from dp2ddp.codemod.facts.places import ExecutionPlace
from dp2ddp.codemod.meeting_places import ADVICE, only_in_main_flow
from dp2ddp.codemod.rule import Flags, Rewrites, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy

BECAUSE = "one run, one tracker: rank 0's; what is read from it, all ranks read"


class Tracker(Rule):
    """Report one run, not one per rank.

    ## What it does
    `SummaryWriter(...)` becomes `tracker_on_rank_zero(SummaryWriter, ...)`, and so does visdom's. Behind the imports of
    wandb, mlflow, clearml, comet_ml, aim, neptune, swanlab stands `wandb = library_on_rank_zero(wandb)`: rank 0 has the
    run.

    ## Why
    W ranks make W event files or W runs, W-1 of them doubles.

    ## Safety
    Lines that log, and lines that read, stay as they are. Rank 0 alone writes, and nobody waits for that. What is read
    (`run.name`, `run.dir`, `active_run().info.run_id`, `experiment.get_key()`, `writer.log_dir`) is read by rank 0, and
    all ranks get it; `wandb.config` is on every rank as rank 0 has it. A hazard in a forward or a data set, where ranks
    do not meet, and for `wandb.agent`, which starts the training itself.

    ## References
    docs/semantics.md#trackers.
    """

    code = "DDP504"
    name = "tracker"
    nodes = ("BaseStatement", "Call")
    examples = (
        Rewrites(
            before="""
                import torch
                from torch.utils.tensorboard import SummaryWriter
                net = torch.nn.DataParallel(net)
                writer = SummaryWriter("runs")
                writer.add_scalar("loss", 1.0, 0)
            """,
            after="""
                import torch
                from torch.utils.tensorboard import SummaryWriter
                net = torch.nn.DataParallel(net)
                writer = tracker_on_rank_zero(SummaryWriter, "runs")
                writer.add_scalar("loss", 1.0, 0)
            """,
        ),
        Rewrites(
            before="""
                import importlib
                import torch
                net = torch.nn.DataParallel(net)
                writer = importlib.import_module(module).SummaryWriter("runs")
            """,
            after="""
                import importlib
                import torch
                net = torch.nn.DataParallel(net)
                writer = tracker_on_rank_zero(importlib.import_module(module).SummaryWriter, "runs")
            """,
        ),
        Rewrites(
            before="""
                import wandb
                import torch
                net = torch.nn.DataParallel(net)
                run = wandb.init(config=args)
                lr = wandb.config.lr
                run.summary["best"] = 1
            """,
            after="""
                import wandb
                import torch

                wandb = library_on_rank_zero(wandb)

                net = torch.nn.DataParallel(net)
                run = wandb.init(config=args)
                lr = wandb.config.lr
                run.summary["best"] = 1
            """,
        ),
        Rewrites(
            before="""
                import torch
                from comet_ml import Experiment
                def start():
                    from clearml import Task as T, Logger
                    import mlflow.pytorch
                    return T.init("a", "b")
                net = torch.nn.DataParallel(net)
                key = Experiment().get_key()
            """,
            after="""
                import torch
                from comet_ml import Experiment

                Experiment = library_on_rank_zero(Experiment)

                def start():
                    from clearml import Task as T, Logger
                    T, Logger = library_on_rank_zero(T), library_on_rank_zero(Logger)
                    import mlflow.pytorch
                    mlflow = library_on_rank_zero(mlflow)
                    return T.init("a", "b")
                net = torch.nn.DataParallel(net)
                key = Experiment().get_key()
            """,
        ),
        Flags(
            before="""
                import torch
                import wandb
                net = torch.nn.DataParallel(net)
                wandb.agent("sweep", function=train)
            """,
            message="wandb.agent() starts the training itself",
        ),
        Flags(
            before="""
                import torch
                import wandb
                class Net(torch.nn.Module):
                    def forward(self, x):
                        wandb.log({"mean": x.mean()})
                        return x
                net = torch.nn.DataParallel(Net())
            """,
            message="wandb is used in the forward of a model",
        ),
        Untouched('import torch\nnet = torch.nn.DataParallel(net)\nwriter.add_scalar("loss", 1.0, 0)'),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        for effect in facts.effects:
            if effect.kind not in ("tracker", "writer"):
                continue
            call = effect.call.node
            kind = "tracker_on_rank_zero" if effect.kind == "tracker" else "object_on_rank_zero"
            helper = strategy.helper(kind)
            if hazard := only_in_main_flow(facts, call, f"{ast.unparse(call.func)}()"):
                yield hazard
            else:
                yield PassTo(call, facts.names.helper(helper), BECAUSE)
                yield Lift(helper, BECAUSE)
        if facts.is_converted:
            return
        for imported in tracker_imports(facts.script, facts.modules, facts.entry.last_import):
            yield from _taken_over(facts, imported)
            yield from _misused(facts, imported)
        for call_ in facts.script.calls_of(*STARTS_TRAINING):
            yield Hazard(
                call_.node,
                f"{call_.name}() starts the training itself, on rank 0 alone",
                "start each run of the sweep with its own command, which the agent of the command line does",
            )


def _taken_over(facts: Facts, imported: TrackerImport) -> Iterator[Finding]:
    """The library's names, as rank 0 has them, from here on."""
    helper = facts.names.helper("library_on_rank_zero")
    given = [f'globals().get("{name}")' if imported.may_be_missing else name for name in imported.names]
    code = f"{', '.join(imported.names)} = {', '.join(f'{helper}({argument})' for argument in given)}"
    if imported.before is not None:
        yield InsertBefore(imported.before, code, BECAUSE)
    else:
        yield InsertAfter(imported.statement, code, BECAUSE)
    yield Lift("library_on_rank_zero", BECAUSE)


def _misused(facts: Facts, imported: TrackerImport) -> Iterator[Finding]:
    """Uses where ranks do not meet, and classes that are made from the library's."""
    for node in facts.script.nodes(ast.Name):
        if (
            not isinstance(node, ast.Name)
            or node.id not in imported.names
            or not isinstance(node.ctx, ast.Load)
        ):
            continue
        place = facts.places.of(node)
        if (
            place in (ExecutionPlace.FORWARD, ExecutionPlace.WORKER)
            and facts.script.scopes.statement(node) is not imported.statement
        ):
            yield Hazard(node, f"{node.id} is used in {place.value}", ADVICE[place])
        parent = facts.script.scopes.parents[node]
        outer = facts.script.scopes.parents[parent] if isinstance(parent, ast.Attribute) else parent
        if isinstance(outer, ast.ClassDef) and (node in outer.bases or parent in outer.bases):
            yield Hazard(node, f"a class is made from {ast.unparse(parent)}", "write it without that base")
