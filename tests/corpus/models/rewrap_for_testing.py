# corpus: idioms = nn.DataParallel; same model wrapped at more than one place (exclusive branches, train/test functions, re-wrap); function main/train/run; new name, raw model kept under another name; raw model kept and used beside the wrapper (optimizer, state_dict, eval, EMA); attributes/methods reached through .module in the training code; optimizer created (or re-created) inside the epoch loop or train(); optimizer created before wrap; device_ids from config/args/variable; not distributed (DDP branch beside); BN frozen or momentum scheduled in the loop; prefix handled by hand (strip/replace "module."); DP(...).to(device)
# corpus: worlds = 2 3
"""Point cloud classes; train() wraps the model, test() wraps it again, main() wraps what it loaded."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


def knn(x, k):
    inner = -2 * torch.matmul(x.transpose(2, 1), x)
    xx = torch.sum(x ** 2, dim=1, keepdim=True)
    return (-xx - inner - xx.transpose(2, 1)).topk(k=k, dim=-1)[1]


def get_graph_feature(x, k=3):
    b, c, n = x.size()
    idx = knn(x, k)
    device = torch.device('cuda')
    idx_base = torch.arange(0, b, device=device).view(-1, 1, 1) * n
    idx = (idx + idx_base).view(-1)
    x = x.transpose(2, 1).contiguous()
    feature = x.view(b * n, -1)[idx, :].view(b, n, k, c)
    x = x.view(b, n, 1, c).repeat(1, 1, k, 1)
    return torch.cat((feature - x, x), dim=3).permute(0, 3, 1, 2)


class DGCNN(nn.Module):
    def __init__(self, args, out=4):
        super().__init__()
        self.k = args.k
        self.bn1 = nn.BatchNorm2d(6)
        self.conv1 = nn.Sequential(nn.Conv2d(6, 6, 1, bias=False), self.bn1, nn.LeakyReLU(0.2))
        self.linear1 = nn.Linear(12, 8)
        self.bn2 = nn.BatchNorm1d(8)
        self.dp1 = nn.Dropout(args.dropout)
        self.linear2 = nn.Linear(8, out)

    def forward(self, x):
        x = self.conv1(get_graph_feature(x, self.k)).max(dim=-1)[0]
        x = torch.cat((F.adaptive_max_pool1d(x, 1).flatten(1), F.adaptive_avg_pool1d(x, 1).flatten(1)), 1)
        return self.linear2(self.dp1(F.leaky_relu(self.bn2(self.linear1(x)), 0.2)))

    def regularizer(self):
        return self.linear1.weight.abs().sum() + self.linear2.weight.abs().sum()

    def set_bn_momentum(self, m):
        self.bn1.momentum = self.bn2.momentum = m


def data(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 4, (n,), generator=g)
    return TensorDataset(torch.randn(n, 3, 12, generator=g) * (1 + y.view(-1, 1, 1).float()), y)


def train(args, raw):
    device = torch.device("cuda" if args.cuda else "cpu")
    opt = torch.optim.SGD(raw.parameters(), lr=args.lr, momentum=args.momentum, weight_decay=1e-4)
    model = nn.DataParallel(raw, device_ids=args.ids).to(device)
    print("Let's use", torch.cuda.device_count(), "GPUs!")
    train_loader = DataLoader(data(34, 0), batch_size=args.batch_size, shuffle=True)
    best = 0
    for epoch in range(args.epochs):
        model.module.set_bn_momentum(max(0.01, 0.1 * 0.5 ** epoch))
        count, total = 0, 0.0
        model.train()
        for x, label in train_loader:
            x, label = x.to(device), label.to(device).squeeze()
            opt.zero_grad()
            logits = model(x)
            loss = F.cross_entropy(logits, label, label_smoothing=0.2) + 1e-3 * model.module.regularizer()
            loss.backward()
            opt.step()
            count += len(x)
            total += loss.item() * len(x)
        acc = test(args, raw)
        print('Train %d, loss: %.6f, test acc: %.4f' % (epoch, total / count, acc))
        if acc >= best:
            best = acc
            torch.save(model.state_dict(), 'model.t7')
        # a new optimizer every epoch
        opt = torch.optim.SGD(model.parameters(), lr=args.lr * 0.5 ** (epoch + 1), momentum=args.momentum)


def test(args, model):
    device = torch.device("cuda" if args.cuda else "cpu")
    model = nn.DataParallel(model.to(device))
    model = model.eval()
    right = 0
    loader = DataLoader(data(15, 1), batch_size=6)
    with torch.no_grad():
        for x, label in loader:
            right += (model(x.to(device)).max(dim=1)[1].cpu() == label).sum().item()
    return right / 15


def main():
    parser = argparse.ArgumentParser(description='Point Cloud Recognition')
    parser.add_argument('--batch_size', type=int, default=10)
    parser.add_argument('--epochs', type=int, default=3)
    parser.add_argument('--lr', type=float, default=0.05)
    parser.add_argument('--momentum', type=float, default=0.9)
    parser.add_argument('--dropout', type=float, default=0.4)
    parser.add_argument('--k', type=int, default=3)
    parser.add_argument('--distributed', action='store_true')
    args = parser.parse_args()
    args.cuda = torch.cuda.is_available()
    args.ids = list(range(torch.cuda.device_count()))
    torch.manual_seed(1)
    model = DGCNN(args)
    train(args, model)
    fresh = DGCNN(args).cuda()
    if not args.distributed:
        fresh = nn.DataParallel(fresh)
    else:
        raise NotImplementedError
    fresh.load_state_dict(torch.load('model.t7'))
    print('loaded %.4f' % test(args, fresh.module), sorted(k.replace('module.', '') for k in fresh.state_dict())[0])


if __name__ == '__main__':
    main()
