"""DDP707: checkpoints that are loaded."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.edits import InsertBefore, SetArgument
from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.rule import Change, Finding, Rewrites, Untouched
from dp2ddp.codemod.small_idiomatic.looking import calls_in
from dp2ddp.codemod.small_idiomatic.words import IdiomaticRule, names_cuda, words_of


class OwnDeviceLoad(IdiomaticRule):
    """Load what rank 0 saved onto the rank's own GPU, when it is there.

    ## What it does
    `torch.load(path)` gets a `map_location` that puts what lay on rank 0's GPU on the rank's own. Where the program
    saves as well, all ranks wait for rank 0 before they load.

    ## Why
    Tensors come back on the GPU that they were saved from, rank 0's; and a rank may load before rank 0 has written.

    ## Safety
    Tensors that were saved on the CPU stay there.

    ## References
    pytorch.org/tutorials/intermediate/ddp_tutorial.html; docs/idiomatic.md.
    """

    code = "DDP707"
    name = "idiomatic-load"
    nodes = ("Call",)
    examples = (
        Rewrites(
            before="""
                import torch
                import torch.distributed as dist
                net.cuda()
                torch.save(net.state_dict(), "net.pt")
                net.load_state_dict(torch.load("net.pt"))
            """,
            after="""
                import torch
                import torch.distributed as dist
                net.cuda()
                torch.save(net.state_dict(), "net.pt")
                dist.barrier()  # rank 0 has written
                net.load_state_dict(torch.load("net.pt", map_location={"cuda:0": f"cuda:{local_rank}"}))
            """,
        ),
        Untouched('import torch\nnet.load_state_dict(torch.load("net.pt", map_location="cpu"))'),
    )

    def find(self, module: Module) -> Iterator[Finding]:
        words = words_of(module)
        saves = any(does(call.name) is Does.SAVE for _, call in calls_in(module.program))
        for call in module.calls:
            if call.name != "torch.load":
                continue
            given = call.argument(1, "map_location")
            if given is None and names_cuda(module.program) and not call.may_have_more:
                code = f'{{"cuda:0": f"cuda:{{{words.index}}}"}}'
                why = "what lay on rank 0's GPU comes to the rank's own"
                yield Change(SetArgument(call.node, "map_location", code, why), ("torch",))
            if saves:
                code = f"{words['dist']}.barrier()  # rank 0 has written"
                before = InsertBefore(module.statement(call.node), code, "rank 0 has written", apart=False)
                yield Change(before, ("dist",))
