# corpus: idioms = nn.DataParallel; function main/train/run; DP(...).cuda(); is CUDA available / use_cuda flag only; parameters trained outside the wrapper (center loss, margin head, KD adaptors, top_layer); grads or params edited between backward and step (rescale, binarise, AWP, ortho, accumulate EMA); rebinds the same name; several optimizers; name = DP(Constructor(...)); optimizer created after wrap; .cuda()/'cuda' without index inside forward(); CUDA_VISIBLE_DEVICES set in the script; correct/total counters; lr_scheduler
# corpus: worlds = 2 3
"""Center loss on toy digits; the centers live outside of the wrapper and their gradient is rescaled by hand."""
import argparse
import datetime
import os
import torch
import torch.nn as nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser("Center Loss Example")
parser.add_argument('--batch-size', type=int, default=14)
parser.add_argument('--lr-model', type=float, default=0.01)
parser.add_argument('--lr-cent', type=float, default=0.5)
parser.add_argument('--weight-cent', type=float, default=0.3)
parser.add_argument('--max-epoch', type=int, default=2)
parser.add_argument('--stepsize', type=int, default=2)
parser.add_argument('--gpu', type=str, default='')
parser.add_argument('--seed', type=int, default=1)
parser.add_argument('--use-cpu', action='store_true')
args = parser.parse_args()


class CenterLoss(nn.Module):
    """Wen et al. A Discriminative Feature Learning Approach for Deep Face Recognition. ECCV 2016."""

    def __init__(self, num_classes=4, feat_dim=2, use_gpu=True):
        super(CenterLoss, self).__init__()
        self.num_classes = num_classes
        self.use_gpu = use_gpu
        if self.use_gpu:
            self.centers = nn.Parameter(torch.randn(num_classes, feat_dim).cuda())
        else:
            self.centers = nn.Parameter(torch.randn(num_classes, feat_dim))

    def forward(self, x, labels):
        batch_size = x.size(0)
        distmat = torch.pow(x, 2).sum(dim=1, keepdim=True).expand(batch_size, self.num_classes) + \
            torch.pow(self.centers, 2).sum(dim=1, keepdim=True).expand(self.num_classes, batch_size).t()
        distmat = distmat - 2 * x.mm(self.centers.t())
        classes = torch.arange(self.num_classes).long()
        if self.use_gpu:
            classes = classes.cuda()
        labels = labels.unsqueeze(1).expand(batch_size, self.num_classes)
        mask = labels.eq(classes.expand(batch_size, self.num_classes))
        dist = distmat * mask.float()
        return dist.clamp(min=1e-12, max=1e+12).sum() / batch_size


class ConvNet(nn.Module):
    def __init__(self, num_classes):
        super(ConvNet, self).__init__()
        self.conv1 = nn.Conv2d(1, 6, 3, stride=2)
        self.prelu = nn.PReLU()
        self.bn = nn.BatchNorm1d(54)
        self.fc1 = nn.Linear(54, 2)
        self.fc2 = nn.Linear(2, num_classes)

    def forward(self, x):
        x = self.prelu(self.conv1(x))
        x = self.bn(x.view(x.size(0), -1))
        x = self.fc1(x)
        return x, self.fc2(x)


def main():
    torch.manual_seed(args.seed)
    if args.gpu:
        os.environ['CUDA_VISIBLE_DEVICES'] = args.gpu
    use_gpu = torch.cuda.is_available()
    if args.use_cpu:
        use_gpu = False
    g = torch.Generator().manual_seed(5)
    y = torch.randint(0, 4, (60,), generator=g)
    x = torch.randn(60, 1, 8, 8, generator=g) + y.view(-1, 1, 1, 1).float()
    trainloader = DataLoader(TensorDataset(x[:46], y[:46]), batch_size=args.batch_size, shuffle=True)
    testloader = DataLoader(TensorDataset(x[46:], y[46:]), batch_size=args.batch_size)

    if use_gpu:
        model = nn.DataParallel(ConvNet(num_classes=4)).cuda()
    else:
        model = ConvNet(num_classes=4)
    criterion_xent = nn.CrossEntropyLoss()
    criterion_cent = CenterLoss(num_classes=4, feat_dim=2, use_gpu=use_gpu)
    optimizer_model = torch.optim.SGD(model.parameters(), lr=args.lr_model, weight_decay=5e-04, momentum=0.9)
    optimizer_centloss = torch.optim.SGD(criterion_cent.parameters(), lr=args.lr_cent)
    scheduler = lr_scheduler.StepLR(optimizer_model, step_size=args.stepsize, gamma=0.5)

    for epoch in range(args.max_epoch):
        print("==> Epoch {}/{}".format(epoch + 1, args.max_epoch))
        train(model, criterion_xent, criterion_cent, optimizer_model, optimizer_centloss, trainloader, use_gpu)
        scheduler.step()
        acc, err = test(model, testloader, use_gpu)
        print("Accuracy (%): {:.3f}\t Error rate (%): {:.3f}".format(acc, err))
    print("centers", [round(v, 4) for v in criterion_cent.centers.data.view(-1).tolist()])


def train(model, criterion_xent, criterion_cent, optimizer_model, optimizer_centloss, trainloader, use_gpu):
    model.train()
    for batch_idx, (data, labels) in enumerate(trainloader):
        if use_gpu:
            data, labels = data.cuda(), labels.cuda()
        features, outputs = model(data)
        loss_xent = criterion_xent(outputs, labels)
        loss_cent = criterion_cent(features, labels)
        loss_cent *= args.weight_cent
        loss = loss_xent + loss_cent
        optimizer_model.zero_grad()
        optimizer_centloss.zero_grad()
        loss.backward()
        optimizer_model.step()
        # by doing so, weight_cent would not impact on the learning of centers
        for param in criterion_cent.parameters():
            param.grad.data *= (1. / args.weight_cent)
        optimizer_centloss.step()
        if (batch_idx + 1) % 2 == 0:
            print("Batch {}/{}\t Loss {:.6f} XentLoss {:.6f} CenterLoss {:.6f}".format(
                batch_idx + 1, len(trainloader), loss.item(), loss_xent.item(), loss_cent.item()))


def test(model, testloader, use_gpu):
    model.eval()
    correct, total = 0, 0
    with torch.no_grad():
        for data, labels in testloader:
            if use_gpu:
                data, labels = data.cuda(), labels.cuda()
            features, outputs = model(data)
            predictions = outputs.data.max(1)[1]
            total += labels.size(0)
            correct += (predictions == labels.data).sum()
    return correct.item() * 100. / total, 100 - correct.item() * 100. / total


if __name__ == '__main__':
    main()
