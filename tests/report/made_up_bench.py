"""Benchmarks that nobody ran."""

from __future__ import annotations

from dp2ddp.costs.figures import Benchmark, Figures, Measured, Mode, Sameness, Sent, Setting, spread

SECONDS = {"dp": (0.010, 0.012, 0.011, 0.030), "ddp": (0.005, 0.006, 0.0055, 0.010)}


def figures(mode: Mode, world: int) -> Figures:
    seconds = SECONDS[mode]
    return Figures(
        mode=mode, world=world, virtual=True, steps=4, left_out=1, step=spread(seconds), rows=32.0, waiting=0.001,
        cpu=0.02, resident=(7 * 10**8,) * (1 if mode == "dp" else world),
        devices=tuple((world - device) * 10**6 for device in range(world)), seconds=seconds,
        collectives={} if mode == "dp" else {"all_reduce": Sent(1, 44_000), "all_gather": Sent(2, 4_740)},
        copies={"weights": Sent(1, 44_000), "gradients": Sent(2, 44_000)} if mode == "dp" else {},
        parameters=44_000,
    )  # fmt: skip


def measured(world: int = 2, sameness: Sameness | None = None) -> Measured:
    return Measured(world, figures("dp", world), figures("ddp", world), sameness or Sameness("same", 4))


def benchmark(*found: Measured, script: str = "train.py", failure: str = "") -> Benchmark:
    return Benchmark(
        script=script, port="", launch=f"torchrun {script}", convert=f"dp2ddp convert {script}",
        setting=Setting(5, 25, 2, 2), measured=found, seconds=61.5, remarks=("the machine was busy",),
        surroundings={"torch": "2.9"}, failure=failure,
    )  # fmt: skip
