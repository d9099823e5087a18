"""DDP719: what a tutorial has no words for."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Edit, Finding, Hazard, Import, Lift, Note, Replace
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.idiomatic.once import read_once
from dp2ddp.codemod.rule import Flags, Rule, Untouched, rules_of_style
from dp2ddp.codemod.strategy import Strategy

# Rules of the exact style that have a counterpart here, or that run in both styles.
COUNTERPARTS = {
    *(
        "DDP101",
        "DDP102",
        "DDP103",
        "DDP104",
        "DDP201",
        "DDP202",
        "DDP301",
        "DDP304",
        "DDP307",
        "DDP505",
        "DDP911",
    ),
}
OUTSIDE = ("DDP501", "DDP502", "DDP503", "DDP504", "DDP506")  # of these, what rank 0 does alone is covered
ADVICE = "take the exact style (leave --style out)"


class NoTutorial(Rule):
    """Say where a script needs more than a tutorial's lines.

    ## What it does
    A hazard wherever a rule of the exact style has something to say that no rule of the idiomatic style covers, and
    where DDP's reducer would not sum the gradients as DataParallel did: several backward passes of one forward,
    forwards past the wrapper, penalties on gradients, gradients that are changed before they are summed.

    ## Why
    Half a conversion trains something else, or hangs.

    ## Safety
    The rules of the exact style are asked themselves: what they do not know, nobody here guesses.

    ## References
    docs/idiomatic.md#what-it-refuses.
    """

    code = "DDP719"
    name = "idiomatic-no-tutorial"
    nodes = ("Attribute", "Call", "Name")
    examples = (
        Flags(
            before="""
                import torch
                net = torch.nn.DataParallel(net)
                loss = criterion(net(x), y) + criterion(net(x + 1), y)
                loss.backward()
            """,
            message="2 forwards",
        ),
        Flags(
            before="""
                import torch
                class Parallel(torch.nn.DataParallel):
                    pass
                net = Parallel(net)
            """,
            message="exact",
        ),
        Untouched("import torch\nnet = torch.nn.Linear(2, 2)"),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        if not facts.all_wraps and not facts.hides_wraps:
            return
        if facts.is_entry:
            yield from _about_gradients(facts)
        for rule in rules_of_style("exact"):
            for finding in rule.plan(facts, strategy):
                if isinstance(finding, Hazard):
                    yield finding
                elif isinstance(finding, (Import, Lift, Note)) or _has_counterpart(rule.code, finding):
                    continue
                elif rule.code not in OUTSIDE or not _is_left_to_rank_zero(facts, rule.code, _node(finding)):
                    yield Hazard(
                        finding.node,
                        f"{finding.because}: {rule.code} of the exact style does this, a tutorial does not",
                        ADVICE,
                    )


def _is_left_to_rank_zero(facts: Facts, code: str, node: ast.AST) -> bool:
    """What rank 0 alone comes to; of a clock also a name that nothing else reads: `out = time.strftime("%H%M")`."""
    if read_once(facts).holds(node) or code != "DDP506":
        return read_once(facts).holds(node)
    program, statement = facts.program, facts.script.scopes.statement(node)
    if not isinstance(statement, ast.Assign) or not all(
        isinstance(target, ast.Name) for target in statement.targets
    ):
        return False
    given = {program.variable(target) for target in statement.targets}
    reads = [
        (file, node)
        for file in (facts.files if facts.is_entry else ())
        for node in file.script.nodes(ast.Name, ast.Attribute)
        if isinstance(getattr(node, "ctx", None), ast.Load) and program.variable(node) in given
    ]
    return bool(reads) and all(read_once(file).holds(read) for file, read in reads)


def _has_counterpart(code: str, finding: Edit) -> bool:
    """A wrapper that comes out of a file (DDP505) has none."""
    of_wrapper = code == "DDP505" and isinstance(finding, Replace)
    return code in COUNTERPARTS and not of_wrapper


def _node(finding: Edit) -> ast.AST:
    assert not isinstance(finding, (Import, Lift))
    return finding.node


def _about_gradients(facts: Facts) -> Iterator[Hazard]:
    node = facts.wraps[0].call.node if facts.wraps else facts.script.tree.body[0]
    if facts.hides_wraps:
        yield Hazard(node, "DataParallel is handed on, and its wraps are not all seen", ADVICE)
    stopper = facts.gradient_stopper
    if stopper is not None:
        yield Hazard(
            node,
            f"{stopper}: DistributedDataParallel averages the gradients of one backward of one forward",
            ADVICE,
        )
