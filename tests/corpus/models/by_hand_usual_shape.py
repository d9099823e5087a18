# corpus: idioms = hand-written replicate/scatter/parallel_apply/gather; own data_parallel function; function main/train/run; device_ids from config/args/variable; unconditional; own flag (args.multi_gpu / parallel / mGPUs ...); computed inside the wrapped forward, gathered, then .mean(); text/csv/json log file
# corpus: worlds = 2 3
"""replicate, scatter, parallel_apply, gather: the function that the tutorial shows, with a loss behind it."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import gather, parallel_apply, replicate, scatter
from torch.utils.data import DataLoader, TensorDataset


def data_parallel(module, input, device_ids, output_device=None):
    if not device_ids:
        return module(input)
    if output_device is None:
        output_device = device_ids[0]
    replicas = replicate(module, device_ids)
    inputs = scatter(input, device_ids)
    replicas = replicas[:len(inputs)]
    outputs = parallel_apply(replicas, inputs)
    return gather(outputs, output_device)


class PointNet(nn.Module):
    def __init__(self, k=5):
        super(PointNet, self).__init__()
        self.conv1 = nn.Conv1d(3, 8, 1)
        self.bn1 = nn.BatchNorm1d(8)
        self.conv2 = nn.Conv1d(8, 16, 1)
        self.fc = nn.Linear(16, k)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = torch.max(self.conv2(x), 2)[0]
        return F.log_softmax(self.fc(x), dim=-1)


def main():
    torch.manual_seed(0)
    parallel = True
    devices = [torch.device('cuda', i) for i in range(torch.cuda.device_count())] if parallel else []
    g = torch.Generator().manual_seed(6)
    pts, lab = torch.randn(47, 3, 20, generator=g), torch.randint(0, 5, (47,), generator=g)
    loader = DataLoader(TensorDataset(pts, lab), batch_size=12, shuffle=True, drop_last=False)
    model = PointNet().cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=1e-4)
    log = open('log.txt', 'w')
    for epoch in range(3):
        model.train()
        for i, (points, target) in enumerate(loader):
            points, target = points.cuda(), target.cuda()
            optimizer.zero_grad()
            pred = data_parallel(model, points, devices)
            loss = F.nll_loss(pred, target)
            loss.backward()
            optimizer.step()
            correct = pred.data.max(1)[1].eq(target.data).cpu().sum()
            log.write('[%d: %d] train loss: %f accuracy: %f\n' % (epoch, i, loss.item(), correct.item() / float(len(points))))
        with torch.no_grad():
            model.eval()
            print(epoch, round(data_parallel(model, pts[:7].cuda(), devices).exp().max(1)[0].mean().item(), 5))
    log.close()


if __name__ == '__main__':
    main()
