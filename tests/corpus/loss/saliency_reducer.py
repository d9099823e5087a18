# corpus: idioms = Variable(); parameters without gradient on a step (optional heads, toggled requires_grad, unused branches); clip_grad; loss.data[0]; computed inside the wrapped forward, gathered, then .mean()
# corpus: worlds = 2 3
# corpus: helpers = WholeBatchParallel
"""A frozen backbone, and gradients of the inputs read after backward (saliency), which must be those of the whole batch."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd import Variable
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(8)


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.backbone = nn.Sequential(nn.Linear(9, 14), nn.Tanh())
        self.fc = nn.Linear(14, 3)

    def forward(self, x, y):
        logits = self.fc(self.backbone(x))
        return F.cross_entropy(logits, y), logits


def main():
    net = Net()
    for p in net.backbone.parameters():
        p.requires_grad = False                      # fine-tune the head only
    x = torch.randn(44, 9)
    y = (x[:, :2].sum(1) > 0).long() + (x[:, 2] > 1).long()
    loader = DataLoader(TensorDataset(x, y), batch_size=12, shuffle=True)
    net = nn.DataParallel(net).cuda()
    optimizer = torch.optim.SGD(filter(lambda p: p.requires_grad, net.parameters()), lr=0.1, momentum=0.9, weight_decay=1e-2)
    maps = torch.zeros(9)
    for epoch in range(3):
        for i, (data, target) in enumerate(loader):
            data, target = Variable(data.cuda(), requires_grad=True), Variable(target.cuda())
            losses, logits = net(data, target)
            loss = losses.mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            saliency = data.grad.data.abs()
            maps += saliency.sum(0).cpu()
            print('%d [%d/%d] first part %.5f of %d, saliency %.6f of %d rows, acc %.3f' % (
                epoch, i, len(loader), losses.data[0], len(losses), saliency.sum().item(), len(saliency), (logits.argmax(1) == target).float().mean().item()))
    print('most salient', maps.argmax().item())
    torch.save({'net': net.state_dict(), 'maps': maps}, 'saliency.pt')


if __name__ == '__main__':
    main()
