# corpus: idioms = BN frozen or momentum scheduled in the loop; manual adjust_learning_rate; order, crops or lengths drawn from np.random / random in dataset, sampler or loop; sum / none reduction normalised by hand; model.module access
# corpus: worlds = 2 3 4
"""Point cloud part segmentation: BN momentum decays with the epochs, feature-transform penalty, BN frozen in the last epoch."""
import argparse
import logging
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

logger = logging.getLogger("Model")
logger.setLevel(logging.INFO)
logger.addHandler(logging.StreamHandler(sys.stdout))


def parse_args():
    parser = argparse.ArgumentParser('Model')
    parser.add_argument('--batch_size', type=int, default=8)
    parser.add_argument('--epoch', default=4, type=int)
    parser.add_argument('--learning_rate', default=0.01, type=float)
    parser.add_argument('--decay_rate', type=float, default=1e-4)
    parser.add_argument('--step_size', type=int, default=2)
    parser.add_argument('--lr_decay', type=float, default=0.5)
    return parser.parse_args()


def inplace_relu(m):
    if m.__class__.__name__.find('ReLU') != -1:
        m.inplace = True


def bn_momentum_adjust(m, momentum):
    if isinstance(m, nn.BatchNorm1d) or isinstance(m, nn.BatchNorm2d):
        m.momentum = momentum


class Shapes(Dataset):
    def __init__(self, n=26, points=12):
        rng = np.random.RandomState(0)
        self.xyz = rng.randn(n, points, 3).astype(np.float32)
        self.seg = (self.xyz[:, :, 0] > 0).astype(np.int64) + (self.xyz[:, :, 1] > 0.3)
        self.cls = rng.randint(0, 2, n)

    def __len__(self):
        return len(self.xyz)

    def __getitem__(self, i):
        return self.xyz[i], self.cls[i], self.seg[i]


class PointNet(nn.Module):
    def __init__(self, parts=3, shapes=2):
        super().__init__()
        self.tnet = nn.Sequential(nn.Conv1d(3, 8, 1), nn.BatchNorm1d(8), nn.ReLU())
        self.fc_t = nn.Linear(8, 9)
        self.conv1, self.bn1 = nn.Conv1d(3, 8, 1), nn.BatchNorm1d(8)
        self.head = nn.Conv1d(8 + 8 + shapes, parts, 1)

    def forward(self, xyz, label):
        B, _, N = xyz.shape
        trans = self.fc_t(self.tnet(xyz).max(2)[0]).view(B, 3, 3)
        trans = trans + torch.eye(3, device=xyz.device)
        f = F.relu(self.bn1(self.conv1(torch.bmm(trans, xyz))))
        g = f.max(2, keepdim=True)[0].expand(-1, -1, N)
        one_hot = label.view(B, -1, 1).expand(-1, -1, N)
        return F.log_softmax(self.head(torch.cat([f, g, one_hot], 1)), 1).transpose(1, 2), trans


class get_loss(nn.Module):
    def __init__(self, mat_diff_loss_scale=0.1):
        super().__init__()
        self.scale = mat_diff_loss_scale

    def forward(self, pred, target, trans_feat, weight):
        nll = F.nll_loss(pred, target, weight=weight)
        I = torch.eye(3, device=trans_feat.device)[None]
        diff = torch.norm(torch.bmm(trans_feat, trans_feat.transpose(2, 1)) - I, dim=(1, 2))
        return nll + self.scale * torch.sum(diff) / diff.size(0)


def random_scale_and_shift(batch):
    for k in range(batch.shape[0]):
        batch[k] *= np.random.uniform(0.8, 1.25)
    return batch + np.random.uniform(-0.1, 0.1, (batch.shape[0], 1, 3))


def main(args):
    np.random.seed(12)
    torch.manual_seed(12)
    trainDataLoader = DataLoader(Shapes(), batch_size=args.batch_size, shuffle=True, num_workers=0)
    classifier = PointNet().cuda()
    classifier.apply(inplace_relu)
    classifier = torch.nn.DataParallel(classifier)
    criterion = get_loss().cuda()
    optimizer = torch.optim.Adam(classifier.parameters(), lr=args.learning_rate, betas=(0.9, 0.999), weight_decay=args.decay_rate)
    weight = torch.tensor([1.0, 2.0, 0.5]).cuda()
    best_acc = 0
    for epoch in range(args.epoch):
        lr = max(args.learning_rate * (args.lr_decay ** (epoch // args.step_size)), 1e-5)
        logger.info('Learning rate:%f' % lr)
        for param_group in optimizer.param_groups:
            param_group['lr'] = lr
        momentum = max(0.1 * (0.5 ** (epoch // 1)), 0.01)
        logger.info('BN momentum updated to: %f' % momentum)
        classifier = classifier.apply(lambda x: bn_momentum_adjust(x, momentum))
        classifier = classifier.train()
        if epoch == args.epoch - 1:
            for m in classifier.modules():
                if isinstance(m, nn.BatchNorm1d):
                    m.eval()
        mean_correct = []
        for i, (points, label, target) in enumerate(trainDataLoader):
            optimizer.zero_grad()
            points = torch.Tensor(random_scale_and_shift(points.data.numpy()).astype(np.float32))
            points, label, target = points.float().cuda(), label.long().cuda(), target.long().cuda()
            points = points.transpose(2, 1)
            seg_pred, trans_feat = classifier(points, torch.eye(2)[label.cpu()].cuda())
            seg_pred = seg_pred.contiguous().view(-1, 3)
            target = target.view(-1, 1)[:, 0]
            correct = seg_pred.data.max(1)[1].eq(target.data).cpu().sum()
            mean_correct.append(correct.item() / (points.size(0) * 12))
            loss = criterion(seg_pred, target, trans_feat, weight)
            loss.backward()
            optimizer.step()
        logger.info('Train accuracy is: %.5f loss %.6f' % (np.mean(mean_correct), loss.item()))
        logger.info('bn1 mean %.6f' % classifier.module.bn1.running_mean.sum().item())
        if np.mean(mean_correct) > best_acc:
            best_acc = np.mean(mean_correct)
            torch.save({'epoch': epoch, 'model_state_dict': classifier.state_dict(), 'optimizer_state_dict': optimizer.state_dict()}, 'best_model.pth')


if __name__ == '__main__':
    main(parse_args())
