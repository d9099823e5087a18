"""As timm's train.py: a namespace with everything, is_primary, reduce_tensor, EMA, a saver."""
import argparse
import logging
import os
from collections import OrderedDict

import torch
import torch.nn as nn
from timm import utils
from timm.data import create_dataset, create_loader
from timm.models import create_model
from timm.utils import ModelEmaV2
from torch.nn.parallel import DistributedDataParallel as NativeDDP

_logger = logging.getLogger("train")
parser = argparse.ArgumentParser(description="PyTorch ImageNet Training")
parser.add_argument("-b", "--batch-size", type=int, default=128)
parser.add_argument("--epochs", type=int, default=300)
parser.add_argument("--local_rank", default=0, type=int)
parser.add_argument("--log-wandb", action="store_true")
try:
    import wandb
    has_wandb = True
except ImportError:
    has_wandb = False


def main():
    args = parser.parse_args()
    device = utils.init_distributed_device(args)
    if args.distributed:
        _logger.info(f"Training in distributed mode. Process {args.rank}, total {args.world_size}.")
    utils.random_seed(42, args.rank)
    model = create_model("resnet50")
    model.to(device)
    if args.distributed:
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model_ema = ModelEmaV2(model, decay=0.9998)
    if args.distributed:
        if utils.is_primary(args):
            _logger.info("Using native Torch DistributedDataParallel.")
        model = NativeDDP(model, device_ids=[device], broadcast_buffers=True)
    loader_train = create_loader(create_dataset("", root="data"), (3, 224, 224), args.batch_size,
                                 is_training=True, distributed=args.distributed)
    loader_eval = create_loader(create_dataset("", root="val"), (3, 224, 224), args.batch_size,
                                distributed=args.distributed)
    saver = None
    if utils.is_primary(args):
        saver = utils.CheckpointSaver(model=model, optimizer=optimizer, model_ema=model_ema)
    if utils.is_primary(args) and args.log_wandb and has_wandb:
        wandb.init(project="timm", config=args)
    for epoch in range(args.epochs):
        if hasattr(loader_train, "sampler") and hasattr(loader_train.sampler, "set_epoch"):
            loader_train.sampler.set_epoch(epoch)
        for batch_idx, (input, target) in enumerate(loader_train):
            loss = nn.functional.cross_entropy(model(input), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            model_ema.update(model)
            if batch_idx % 50 == 0:
                reduced = utils.reduce_tensor(loss.data, args.world_size)
                if utils.is_primary(args):
                    _logger.info(f"Train: {epoch} [{batch_idx}] Loss: {reduced.item():.3f}")
        if args.distributed:
            utils.distribute_bn(model, args.world_size, True)
        metrics = validate(model, loader_eval, args)
        if saver is not None:
            saver.save_checkpoint(epoch, metric=metrics["top1"])


def validate(model, loader, args):
    top1 = utils.AverageMeter()
    model.eval()
    with torch.inference_mode():
        for input, target in loader:
            acc1 = (model(input).argmax(1) == target).float().mean()
            if args.distributed:
                acc1 = utils.reduce_tensor(acc1, args.world_size)
            top1.update(acc1.item(), input.size(0))
    return OrderedDict([("top1", top1.avg)])


if __name__ == "__main__":
    main()
