"""Counted bytes of a step beside the formulas of docs/bench.md: `python benchmarks/scaling.py [NAMES] [-n 2,4,8]`.

On virtual devices, so it needs no more cores than there are; nothing is timed. What a rank sends is read from the
kernel (TCP_INFO of its connections), so it holds gradients, gloo's headers, and whatever no wrapper sees.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from dataclasses import dataclass
from typing import Any

import ports

STEPS = 9


@dataclass(frozen=True)
class Sizes:
    """In bytes, but for the batch: its rows."""

    parameters: int
    row: int  # of the batch, with its label
    label: int
    output: int
    batch: int


SIZES = {
    "tiny": lambda: Sizes(
        weight(model("tiny").net()), row=3 * 8 * 8 * 4 + 8, label=8, output=10 * 4, batch=16
    ),
    "lm": lambda: Sizes(
        weight(model("lm").LanguageModel()), 2 * 32 * 8, 32 * 8, output=32 * 16000 * 4, batch=16
    ),
    "cnn": lambda: Sizes(
        weight(model("cnn").ResNet()), 3 * 32 * 32 * 4 + 8, label=8, output=10 * 4, batch=64
    ),
}


def model(name: str) -> Any:
    """benchmarks/ports/NAME/model.py."""
    sys.path.insert(0, str(ports.PORTS / name))
    try:
        sys.modules.pop("model", None)
        return importlib.import_module("model")
    finally:
        sys.path.pop(0)


def weight(net: Any) -> int:
    """Bytes of its parameters."""
    return sum(one.numel() * one.element_size() for one in net.parameters())


def gradients(sizes: Sizes, world: int) -> float:
    """What a rank sends for the sum of gradients, by rings or by halving and doubling."""
    return 2 * (world - 1) / world * sizes.parameters


def data_parallel(sizes: Sizes, world: int) -> float:
    """What leaves device 0 in a forward, or comes to it: weights, inputs and outputs of the other chunks.

    Labels stay where they are. (Copies of buffers are not counted on virtual devices.)
    """
    others = sizes.batch - -(-sizes.batch // world)
    return float(others * (sizes.row - sizes.label + sizes.output) + (world - 1) * sizes.parameters)


def compare(name: str, world: int) -> list[str]:
    sizes = SIZES[name]()
    with ports.scratch(name) as folder:
        arguments = ["--steps", str(STEPS)]
        conversion = ports.counted(folder, "train_converted.py", "ddp", world, arguments, STEPS)
        port = ports.counted(folder, "train_ddp.py", "ddp", world, arguments, STEPS)
        whole = ports.counted(folder, "train_dp.py", "dp", world, arguments, STEPS)
    lines = [
        f"| {name} | {world} | DataParallel | {whole.all_ranks('moved'):,.0f} | {sizes.batch * sizes.row:,} "
        f"| {whole.all_ranks('between devices'):,.0f} | {data_parallel(sizes, world):,.0f} | |"
    ]
    for kind, found in (("conversion", conversion), ("port", port)):
        beside = found.a_step("sent") - gradients(sizes, world)
        lines.append(
            f"| {name} | {world} | {kind} | {found.all_ranks('moved'):,.0f} | {sizes.batch * sizes.row:,} "
            f"| {found.a_step('sent'):,.0f} | {gradients(sizes, world):,.0f} | {beside:,.0f} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(SIZES))
    parser.add_argument("-n", default="2,4,8", help="numbers of ranks")
    options = parser.parse_args()
    print(
        ports.head(
            "script, W, version, bytes to devices (all ranks), B x, "
            "between devices or sent by a rank, on paper, beside gradients"
        )
    )
    for name in options.names:
        for world in map(int, options.n.split(",")):
            print("\n".join(compare(name, world)), flush=True)


if __name__ == "__main__":
    main()
