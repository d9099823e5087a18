# corpus: idioms = torch.nn.DataParallel; function main/train/run; DP(...).cuda(); yaml/yacs/json config; DataLoader built in: other file (relative to the wrap); train loop / backward in: other file (relative to the wrap); submodule obj.attr = DP(obj.attr)
# corpus: idioms = computed inside the wrapped forward, gathered, then .mean(); dict / list / non-tensor / None / raw samples passed to the wrapped forward; text/csv/json log file; makedirs/mkdir; clip_grad; __name__ guard; argparse
# corpus: arguments = --config configs/tiny.json
# corpus: helpers = WholeBatchDDP
"""OpenMMLab style: registries, a runner with hooks, a library beside the tools."""
import argparse
import os.path as osp
import sys

sys.path.insert(0, osp.join(osp.dirname(osp.abspath(__file__)), '..'))

import torch

from mini.core import Config, Runner, set_random_seed
from mini.datasets import build_dataloader
from mini.models import build_detector


def parse_args():
    parser = argparse.ArgumentParser(description='Train a detector')
    parser.add_argument('--config', required=True)
    parser.add_argument('--work-dir', default='work_dirs')
    return parser.parse_args()


def main():
    args = parse_args()
    cfg = Config.fromfile(args.config)
    set_random_seed(cfg.seed)
    model = build_detector(cfg.model)
    model = torch.nn.DataParallel(model, device_ids=range(cfg.gpus)).cuda()
    runner = Runner(model, cfg.optimizer, args.work_dir, cfg.hooks)
    runner.run(build_dataloader(cfg.data), cfg.total_epochs)


if __name__ == '__main__':
    main()
