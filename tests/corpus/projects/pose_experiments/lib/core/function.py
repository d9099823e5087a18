import logging

import torch

logger = logging.getLogger(__name__)


class AverageMeter(object):
    def __init__(self):
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count if self.count != 0 else 0


def train(config, train_loader, model, criterion, optimizer, epoch, writer_dict):
    losses = AverageMeter()
    model.train()
    for i, (input, target, target_weight, meta) in enumerate(train_loader):
        output = model(input)
        target = target.cuda(non_blocking=True)
        target_weight = target_weight.cuda(non_blocking=True)
        loss = criterion(output, target, target_weight)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.update(loss.item(), input.size(0))
        logger.info('Epoch: [{0}][{1}/{2}] Loss {loss.val:.5f} ({loss.avg:.5f}) last {3}'.format(
            epoch, i, len(train_loader), int(meta['index'][-1]), loss=losses))
        writer_dict['writer'].add_scalar('train_loss', losses.val, writer_dict['train_global_steps'])
        writer_dict['train_global_steps'] += 1


def validate(config, val_loader, model, criterion):
    hits = total = 0
    model.eval()
    with torch.no_grad():
        for i, (input, target, target_weight, meta) in enumerate(val_loader):
            output = model(input)
            places = output.flatten(2).argmax(2).cpu()
            hits += (places == target.flatten(2).argmax(2)).sum().item()
            total += places.numel()
    logger.info('PCK {:.4f}'.format(hits / total))
    return hits / total
