import torch
import torch.nn as nn
from torch.nn import init


def init_weights(net, gain=0.1):
    for m in net.modules():
        if isinstance(m, nn.Conv2d):
            init.normal_(m.weight.data, 0.0, gain)
            init.constant_(m.bias.data, 0.0)


def init_net(net, gpu_ids=[]):
    if len(gpu_ids) > 0:
        assert torch.cuda.is_available()
        net.to(gpu_ids[0])
        net = torch.nn.DataParallel(net, gpu_ids)
    init_weights(net)
    return net


def define(kind, channels, gpu_ids=[]):
    if kind == 'G':
        net = nn.Sequential(nn.Conv2d(1, channels, 3, 1, 1), nn.InstanceNorm2d(channels), nn.ReLU(True),
                            nn.Conv2d(channels, 1, 3, 1, 1), nn.Tanh())
    else:
        net = nn.Sequential(nn.Conv2d(1, channels, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(channels, 1, 3))
    return init_net(net, gpu_ids)


class GANLoss(nn.Module):
    def __init__(self):
        super(GANLoss, self).__init__()
        self.register_buffer('real_label', torch.tensor(1.0))
        self.register_buffer('fake_label', torch.tensor(0.0))
        self.loss = nn.MSELoss()

    def __call__(self, input, target_is_real):
        target = self.real_label if target_is_real else self.fake_label
        return self.loss(input, target.expand_as(input))
