"""Of a converted script: hooks on a model that is not wrapped, and hooks that keep nothing."""

import torch
from ddp_helpers import WholeBatchDDP, init_distributed

init_distributed()
teacher, student = make_pair()
kept = []


def scale(module, given, made):
    module.seen = [made]
    rows = {}
    rows["all"] = made * 2
    return rows["all"]


teacher.net.fc.register_forward_hook(lambda module, given, made: kept.append(made))
student.net.fc.register_forward_hook(scale)
model = WholeBatchDDP(student.net)
