# corpus: idioms = DataLoader built in: other file (relative to the wrap); collate_fn; shuffle literal True; batch size multiplied by the number of GPUs in the script; len(loader.dataset); correct/total counters
# corpus: worlds = 2 3
# corpus: helpers = WholeBatchDDP
"""Arrhythmia detection: data set, collate function and loaders live in another module."""
import torch
import torch.nn as nn

from datasets import build_loaders


def main():
    torch.manual_seed(3)
    n_gpu = torch.cuda.device_count()
    train_loader, test_loader = build_loaders(5 * n_gpu)
    model = nn.Sequential(nn.Linear(12, 20), nn.BatchNorm1d(20), nn.ReLU(), nn.Dropout(0.1), nn.Linear(20, 2)).cuda()
    if n_gpu > 1:
        model = nn.DataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for epoch in range(3):
        model.train()
        for x, y in train_loader:
            x, y = x.cuda(), y.cuda()
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y, label_smoothing=0.1)
            loss.backward()
            optimizer.step()
        model.eval()
        correct = total = 0
        with torch.no_grad():
            for x, y in test_loader:
                out = model(x.cuda())
                correct += (out.argmax(1).cpu() == y).sum().item()
                total += y.size(0)
        print('epoch %d loss %.5f acc %d/%d of %d' % (epoch, loss.item(), correct, total, len(test_loader.dataset)))


if __name__ == '__main__':
    main()
