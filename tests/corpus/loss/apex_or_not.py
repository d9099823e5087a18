# corpus: idioms = apex; torch GradScaler/autocast; manual adjust_learning_rate; gradient accumulation; criterion itself wrapped / loss module replicated
# corpus: arguments = --amp
"""Apex where it is installed, torch.amp otherwise; label smoothing criterion module; every second batch steps."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

try:
    from apex import amp
    from apex.parallel import convert_syncbn_model
    has_apex = True
except ImportError:
    amp = convert_syncbn_model = None
    has_apex = False

parser = argparse.ArgumentParser(description='classification')
parser.add_argument('--amp', action='store_true')
parser.add_argument('--opt-level', default='O1')
parser.add_argument('--accumulate', default=2, type=int)
parser.add_argument('--smoothing', default=0.1, type=float)
parser.add_argument('--epochs', default=4, type=int)
parser.add_argument('--lr', default=0.05, type=float)


class LabelSmoothing(nn.Module):
    def __init__(self, smoothing=0.0):
        super().__init__()
        self.smoothing = smoothing
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x, target):
        logprobs = F.log_softmax(self.scale * x, dim=-1)
        nll = -logprobs.gather(dim=-1, index=target.unsqueeze(1)).squeeze(1)
        return ((1 - self.smoothing) * nll - self.smoothing * logprobs.mean(-1))


def main():
    args = parser.parse_args()
    torch.manual_seed(2)
    x = torch.randn(26, 9)
    y = (x @ torch.randn(9, 4)).argmax(1)
    loader = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)
    model = nn.Sequential(nn.Linear(9, 20), nn.ReLU(), nn.Dropout(0.1), nn.Linear(20, 4)).cuda()
    smooth = LabelSmoothing(args.smoothing).cuda()
    optimizer = torch.optim.SGD(list(model.parameters()) + list(smooth.parameters()), lr=args.lr, momentum=0.9)
    use_apex = args.amp and has_apex
    if use_apex:
        model = convert_syncbn_model(model)
        model, optimizer = amp.initialize(model, optimizer, opt_level=args.opt_level)
    model = nn.DataParallel(model)
    criterion = nn.DataParallel(smooth)
    scaler = torch.amp.GradScaler('cuda', enabled=args.amp and not use_apex, init_scale=1024.)
    for epoch in range(args.epochs):
        lr = args.lr * 0.5 ** epoch
        for g in optimizer.param_groups:
            g['lr'] = lr
        optimizer.zero_grad()
        seen = 0
        for i, (input, target) in enumerate(loader):
            input, target = input.cuda(), target.cuda()
            with torch.autocast('cuda', enabled=args.amp and not use_apex):
                output = model(input)
                loss = criterion(output.float(), target).mean()
            if use_apex:
                with amp.scale_loss(loss / args.accumulate, optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                scaler.scale(loss / args.accumulate).backward()
            seen += 1
            if seen == args.accumulate or i + 1 == len(loader):       # the remainder steps as well
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
                seen = 0
            print(epoch, i, '%.5f' % loss.item(), lr)
    print('temperature %.5f' % smooth.scale.item())
    torch.save({'state_dict': model.state_dict(), 'scale': smooth.state_dict(), 'amp': amp.state_dict() if use_apex else scaler.state_dict()}, 'm.pth')


if __name__ == '__main__':
    main()
