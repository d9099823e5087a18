"""The same seed once more: replicas begin anew, whatever the script has drawn in between."""

from __future__ import annotations

import torch
from dp2ddp.templates.ddp import GraphDDP
from dp2ddp.templates.seeding import seed_again


def test_the_devices_own_stream_begins_anew() -> None:
    stream, generator, drawn = GraphDDP.device_stream, torch.default_generator, []
    for _ in range(2):
        assert seed_again(torch.manual_seed, 5) is generator
        torch.rand(3)  # the script's own draws
        for _ in range(2):
            with stream.drawn_from(generator):
                drawn.append(torch.rand(2).tolist())
    assert drawn[:2] == drawn[2:]
    assert drawn[0] != drawn[1]
