# corpus: idioms = training loop without torch DataLoader (own iterator, queue, replay buffer); order, crops or lengths drawn from np.random / random in dataset, sampler or loop; args.batch_size used outside the DataLoader (loss mask, steps, lr, asserts, meters); DataLoader built in: none in closure (relative to the wrap); torch.rand* inside the train step; batch size multiplied by the number of GPUs in the script
# corpus: worlds = 2 3 4
"""Point cloud classification without any loader: arrays shuffled, rotated and jittered in the loop."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH_SIZE = 4
NUM_POINT = 24
MAX_EPOCH = 3

rng = np.random.RandomState(0)
shapes = rng.randn(5, NUM_POINT, 3)
labels = rng.randint(0, 5, size=53)
clouds = (shapes[labels] + 0.2 * rng.randn(53, NUM_POINT, 3)).astype('float32')

np.random.seed(99)
torch.manual_seed(99)


def shuffle_data(data, labels):
    idx = np.arange(len(labels))
    np.random.shuffle(idx)
    return data[idx, ...], labels[idx]


def rotate_point_cloud(batch_data):
    rotated = np.zeros(batch_data.shape, dtype=np.float32)
    for k in range(batch_data.shape[0]):
        angle = np.random.uniform() * 2 * np.pi
        c, s = np.cos(angle), np.sin(angle)
        rotated[k] = np.dot(batch_data[k], np.array([[c, 0, s], [0, 1, 0], [-s, 0, c]]))
    return rotated


class PointNet(nn.Module):
    def __init__(self, k=5):
        super(PointNet, self).__init__()
        self.conv1, self.bn1 = nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16)
        self.conv2, self.bn2 = nn.Conv1d(16, 32, 1), nn.BatchNorm1d(32)
        self.fc = nn.Linear(32, k)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.bn2(self.conv2(x)).max(2)[0]
        return F.log_softmax(self.fc(x), dim=1), x


ngpu = torch.cuda.device_count()
batch_size = BATCH_SIZE * max(ngpu, 1)
print('using {} points a step'.format(batch_size * NUM_POINT))
net = nn.DataParallel(PointNet())
net.cuda()
opt = torch.optim.Adam(net.parameters(), lr=0.01)

for epoch in range(MAX_EPOCH):
    current_data, current_label = shuffle_data(clouds, labels)
    num_batches = current_data.shape[0] // batch_size + int(current_data.shape[0] % batch_size > 0)
    seen = correct = 0
    loss_sum = 0.
    for batch_idx in range(num_batches):
        start, end = batch_idx * batch_size, (batch_idx + 1) * batch_size
        points = torch.from_numpy(rotate_point_cloud(current_data[start:end]))
        points += torch.clamp(0.01 * torch.randn_like(points), -0.05, 0.05)
        target = torch.from_numpy(current_label[start:end])
        points, target = points.transpose(2, 1).cuda(), target.cuda()
        keep = torch.randperm(NUM_POINT, device='cuda')[:NUM_POINT - 4]
        pred, feat = net(points[:, :, keep])
        loss = F.nll_loss(pred, target) + 1e-4 * feat.pow(2).sum() / BATCH_SIZE
        opt.zero_grad()
        loss.backward()
        opt.step()
        correct += pred.max(1)[1].eq(target).sum().item()
        seen += len(target)
        loss_sum += loss.item()
    print('**** EPOCH %03d **** mean loss: %f accuracy: %f' % (epoch, loss_sum / num_batches, correct / float(seen)))
