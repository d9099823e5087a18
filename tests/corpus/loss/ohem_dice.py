# corpus: idioms = couples samples of the batch (contrastive/triplet/relational/NCE/topk/episode); sum / none reduction normalised by hand; clip_grad; ReduceLROnPlateau/metric driven
# corpus: worlds = 2 3 4
"""Medical segmentation: soft Dice over the whole batch, plus the hardest pixels of the batch (OHEM, top-k)."""
import os
from optparse import OptionParser

import torch
import torch.backends.cudnn as cudnn
import torch.nn as nn
import torch.nn.functional as F
from torch import optim
from torch.utils.data import DataLoader, TensorDataset, random_split


class DoubleConv(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.double_conv = nn.Sequential(
            nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(2, o), nn.ReLU(inplace=True), nn.Conv2d(o, o, 3, padding=1), nn.ReLU(inplace=True))

    def forward(self, x):
        return self.double_conv(x)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inc, self.down, self.up, self.outc = DoubleConv(1, 4), DoubleConv(4, 8), DoubleConv(12, 4), nn.Conv2d(4, 1, 1)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.down(F.max_pool2d(x1, 2))
        x2 = F.interpolate(x2, scale_factor=2)
        return self.outc(self.up(torch.cat([x1, x2], 1)))


def dice_loss(pred, target, smooth=1.):
    iflat = pred.contiguous().view(-1)
    tflat = target.contiguous().view(-1)
    intersection = (iflat * tflat).sum()
    return 1 - ((2. * intersection + smooth) / (iflat.sum() + tflat.sum() + smooth))


class OhemBCE(nn.Module):
    def __init__(self, ratio=0.3, floor=0.6):
        super().__init__()
        self.ratio, self.floor = ratio, floor

    def forward(self, logits, target):
        loss = F.binary_cross_entropy_with_logits(logits, target, reduction='none').view(-1)
        num = int(self.ratio * loss.numel())
        hard, _ = loss.topk(num)
        hard = hard[hard > min(self.floor, hard[num // 2].item())]
        return hard.sum() / max(hard.numel(), 1)


def train_net(net, epochs=4, batch_size=10, lr=0.02):
    g = torch.Generator().manual_seed(8)
    imgs = torch.randn(44, 1, 8, 8, generator=g)
    masks = (F.avg_pool2d(imgs, 3, 1, 1) > torch.linspace(0, 0.9, 44)[:, None, None, None]).float()
    dataset = TensorDataset(imgs, masks)
    n_val = 8
    train, val = random_split(dataset, [len(dataset) - n_val, n_val])
    train_loader = DataLoader(train, batch_size=batch_size, shuffle=True)
    val_loader = DataLoader(val, batch_size=batch_size, shuffle=False)
    optimizer = optim.RMSprop(net.parameters(), lr=lr, weight_decay=1e-8)
    scheduler = optim.lr_scheduler.ReduceLROnPlateau(optimizer, 'max', patience=0, factor=0.3)
    criterion = OhemBCE()
    global_step = 0
    for epoch in range(epochs):
        net.train()
        epoch_loss = 0
        for imgs, true_masks in train_loader:
            imgs = imgs.cuda()
            true_masks = true_masks.cuda()
            masks_pred = net(imgs)
            loss = criterion(masks_pred, true_masks) + dice_loss(torch.sigmoid(masks_pred), true_masks)
            epoch_loss += loss.item()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_value_(net.parameters(), 0.02)
            optimizer.step()
            global_step += 1
        score = eval_net(net, val_loader)
        scheduler.step(score)
        print('step {} Loss (batch): {:.5f}, Validation Dice Coeff: {:.5f}, Learning rate {}'.format(
            global_step, epoch_loss / len(train_loader), score, optimizer.param_groups[0]['lr']))
        os.makedirs('checkpoints/', exist_ok=True)
        torch.save(net.state_dict(), 'checkpoints/' + f'CP_epoch{epoch + 1}.pth')


def eval_net(net, loader):
    net.eval()
    tot = 0
    for imgs, true_masks in loader:
        with torch.no_grad():
            pred = (torch.sigmoid(net(imgs.cuda())) > 0.5).float()
        tot += 1 - dice_loss(pred, true_masks.cuda()).item()
    net.train()
    return tot / len(loader)


if __name__ == '__main__':
    parser = OptionParser()
    parser.add_option('-e', '--epochs', dest='epochs', default=4, type='int')
    (options, args) = parser.parse_args()
    torch.manual_seed(5)
    net = UNet()
    net.cuda()
    cudnn.benchmark = True
    net = nn.DataParallel(net)
    train_net(net, epochs=options.epochs)
