"""The commands, each with its line for --help; `[tool.dp2ddp]` may have a table for each."""

from __future__ import annotations

COMMANDS = {  # the module dp2ddp.cli.NAME is imported only when it runs (start-up time)
    "convert": "Rewrite a DataParallel script as a DistributedDataParallel script.",
    "run": "Run a script in either mode, on real GPUs or virtual devices.",
    "verify": "Run both versions and compare every optimizer step.",
    "launch": "Start a converted script: on GPUs here, on several nodes, on Slurm or Kubernetes.",
    "bench": "Time both versions: speed, memory, traffic, waiting, and the proof beside it.",
    "check": "Find what stands in the way of DDP, and what is wrong where it is used.",
    "lsp": "Show an editor what check finds (it is the editor that starts this).",
    "doctor": "Ask this machine whether training with several processes can work on it.",
    "new": "Write a small training script in both modes, to start from.",
    "rules": "List the rules of convert and check, or show one.",
}
