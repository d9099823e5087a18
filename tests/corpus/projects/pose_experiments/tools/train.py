# corpus: idioms = torch.nn.DataParallel; DP(...).cuda(); function main/train/run; device_ids from config/args/variable; yaml/yacs/json config; batch size multiplied by the number of GPUs in the script; tensors left on the CPU, DP.scatter does the copy; train loop / backward in: other file (relative to the wrap)
# corpus: idioms = DataLoader built in: same scope (relative to the wrap); mean over a data-dependent count - full batch level (after gather); rmtree/copy of code; tensorboard; best selection; lr_scheduler; module.state_dict() (no prefix); argparse; cudnn flags
# corpus: worlds = 2
# corpus: arguments = --cfg tools/tiny.json
"""Scripts and a lib folder: a settings object of its own, the model by eval, the loops in lib/core/function.py."""
from __future__ import absolute_import
from __future__ import division
from __future__ import print_function

import argparse
import os
import pprint
import shutil

import torch
import torch.backends.cudnn as cudnn
import torch.optim
import torch.utils.data

import _init_paths
from config import config
from config import update_config
from core.function import train
from core.function import validate
from core.loss import JointsMSELoss
from core.logger import create_logger

import dataset
import models


def main():
    parser = argparse.ArgumentParser(description='Train keypoints network')
    parser.add_argument('--cfg', required=True, type=str)
    args = parser.parse_args()
    update_config(args.cfg)
    torch.manual_seed(config.SEED)

    logger, final_output_dir, writer = create_logger(config, args.cfg, 'train')
    logger.info(pprint.pformat(config))
    cudnn.benchmark = config.CUDNN.BENCHMARK
    torch.backends.cudnn.enabled = True

    model = eval('models.' + config.MODEL.NAME + '.get_pose_net')(config, is_train=True)

    this_dir = os.path.dirname(__file__)
    shutil.copy2(os.path.join(this_dir, '../lib/models', config.MODEL.NAME + '.py'), final_output_dir)

    gpus = [int(i) for i in config.GPUS.split(',')]
    model = torch.nn.DataParallel(model, device_ids=gpus).cuda()
    criterion = JointsMSELoss(use_target_weight=config.LOSS.USE_TARGET_WEIGHT).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=config.TRAIN.LR)
    lr_scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [1], 0.1)

    train_dataset = eval('dataset.' + config.DATASET.DATASET)(config, True)
    valid_dataset = eval('dataset.' + config.DATASET.DATASET)(config, False)
    train_loader = torch.utils.data.DataLoader(train_dataset, batch_size=config.TRAIN.BATCH_SIZE * len(gpus), shuffle=True)
    valid_loader = torch.utils.data.DataLoader(valid_dataset, batch_size=config.TRAIN.BATCH_SIZE * len(gpus), shuffle=False)

    best_perf = 0.0
    writer_dict = {'writer': writer, 'train_global_steps': 0}
    for epoch in range(config.TRAIN.BEGIN_EPOCH, config.TRAIN.END_EPOCH):
        train(config, train_loader, model, criterion, optimizer, epoch, writer_dict)
        lr_scheduler.step()
        perf_indicator = validate(config, valid_loader, model, criterion)
        if perf_indicator > best_perf:
            best_perf = perf_indicator
            logger.info('=> saving checkpoint to {}'.format(final_output_dir))
            torch.save({'epoch': epoch + 1, 'state_dict': model.state_dict(), 'perf': perf_indicator,
                        'optimizer': optimizer.state_dict()}, os.path.join(final_output_dir, 'checkpoint.pth.tar'))
    torch.save(model.module.state_dict(), os.path.join(final_output_dir, 'final_state.pth.tar'))
    writer.close()


if __name__ == '__main__':
    main()
