import json
import os

import torch
from torch.nn.utils import clip_grad_norm_

from ..registry import HOOKS


class Hook:
    def before_run(self, runner):
        pass

    def after_backward(self, runner):
        pass

    def after_iter(self, runner):
        pass

    def after_epoch(self, runner):
        pass


@HOOKS.register
class GradClipHook(Hook):
    def __init__(self, max_norm):
        self.max_norm = max_norm

    def after_backward(self, runner):
        runner.outputs['norm'] = float(clip_grad_norm_(runner.model.parameters(), self.max_norm))


@HOOKS.register
class JsonLogHook(Hook):
    def before_run(self, runner):
        self.path = os.path.join(runner.work_dir, 'log.json')

    def after_iter(self, runner):
        with open(self.path, 'a') as f:
            f.write(json.dumps({'iter': runner.iter, **{k: round(v, 5) for k, v in runner.outputs.items()}}) + '\n')


@HOOKS.register
class CheckpointHook(Hook):
    def after_epoch(self, runner):
        path = os.path.join(runner.work_dir, 'epoch_%d.pth' % runner.epoch)
        torch.save({'state_dict': runner.model.module.state_dict(), 'iter': runner.iter}, path)
