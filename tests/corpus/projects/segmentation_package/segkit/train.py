# corpus: idioms = nn.DataParallel; class method (__init__); self.attr = DP(...); device_ids from config/args/variable; DataLoader built in: other file (relative to the wrap); train loop / backward in: same file, other scope (relative to the wrap); mean over a data-dependent count - full batch level (after gather)
# corpus: idioms = manual adjust_learning_rate; tensorboard; AverageMeter; drop_last; from x import *; __name__ guard; val loss of this process drives lr / early stop / rollback; makedirs/mkdir
# corpus: worlds = 2
# corpus: module = segkit.train
# corpus: helpers = WholeBatchInParts
"""python -m segkit.train: a package with relative imports, settings in a module, the wrap in the trainer."""
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

from . import config as cfg
from .data import get_loader
from .nets import unet
from .utils import *


class SegTrainer(object):
    def __init__(self, net, device_ids):
        self.device = torch.device('cuda:%d' % device_ids[0] if torch.cuda.is_available() else 'cpu')
        self.net = nn.DataParallel(net, device_ids=device_ids).to(self.device)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=cfg.LR, momentum=0.9, weight_decay=1e-4)
        self.writer = CSVWriter(os.path.join(cfg.OUT, 'scalars.csv'))
        self.step = 0

    def train(self, loader):
        meter = AverageMeter()
        self.net.train()
        for image, mask in loader:
            adjust_learning_rate(self.optimizer, cfg.LR, self.step, cfg.MAX_STEPS)
            image, mask = image.to(self.device), mask.to(self.device)
            logits = self.net(image)
            loss = F.cross_entropy(logits, mask, ignore_index=cfg.IGNORE)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            meter.update(loss.item(), image.size(0))
            self.writer.add('loss', meter.val, self.step)
            self.step += 1
        return meter.avg

    def validate(self, loader):
        confusion = torch.zeros(cfg.CLASSES, cfg.CLASSES)
        self.net.eval()
        with torch.no_grad():
            for image, mask in loader:
                guess = self.net(image.to(self.device)).argmax(1).cpu()
                confusion += confusion_matrix(guess, mask, cfg.CLASSES, cfg.IGNORE)
        return mean_iou(confusion)


def main():
    set_seed(cfg.SEED)
    ensure_dir(cfg.OUT)
    trainer = SegTrainer(unet(cfg.CLASSES), cfg.GPUS)
    best = 0
    for epoch in range(cfg.EPOCHS):
        loss = trainer.train(get_loader('train'))
        miou = trainer.validate(get_loader('val'))
        print(f'epoch {epoch} loss {loss:.4f} mIoU {miou:.4f}')
        if miou > best:
            best = miou
            torch.save(trainer.net.state_dict(), os.path.join(cfg.OUT, 'best.pth'))


if __name__ == '__main__':
    main()
