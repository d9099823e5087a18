# corpus: idioms = shuffle literal True; nn.DataParallel; module level, bare; torch.manual_seed; mean over a data-dependent count - full batch level (after gather)
# corpus: worlds = 2 3
"""Loading counts how often each row was seen, in a list that the loop weighs its losses with, by another name."""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(5)


class Counted(Dataset):
    def __init__(self, rows, seen):
        self.rows, self.seen = rows, seen

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        recent = []
        recent.append(self.seen[index])
        recent[-1][0] += 1
        return self.rows[index], index, recent[-1][0] + len(self.seen)


seen = [[0] for _ in range(20)]
rows = torch.randn(20, 4)
loader = DataLoader(Counted(rows, seen), batch_size=7, shuffle=True)
net = nn.DataParallel(nn.Linear(4, 3)).cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.2)
for epoch in range(3):
    for x, index, times in loader:
        out = net(x.cuda())
        weight = torch.tensor([1.0 / seen[i][0] + 0.1 * seen[(i + 1) % 20][0] for i in index.tolist()]).cuda()
        loss = (weight * nn.functional.cross_entropy(out, index.cuda() % 3, reduction='none')).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    print('epoch %d: %.5f, %d seen' % (epoch, loss.item(), sum(one[0] for one in seen)))
