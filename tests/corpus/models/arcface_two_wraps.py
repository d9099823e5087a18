# corpus: idioms = torch.nn.DataParallel; from torch.nn.parallel import DataParallel; name = DP(Constructor(...)); several models wrapped in one script; module level, under if __name__; isinstance(model, DataParallel); try: net.module ... except: net; hasattr(model,'module'); .cuda()/'cuda' without index inside forward(); output_device=; device_ids literal/comprehension list; yaml/yacs/json config; order, crops or lengths drawn from np.random / random in dataset, sampler or loop; prefix handled by hand (strip/replace "module."); 'cuda:0' literal; lr_scheduler; module.state_dict() (no prefix)
# corpus: worlds = 2 3
"""Faces: the network and its margin head are wrapped one after the other, labels go into the head."""
import math
import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn import Parameter
from torch.nn.parallel import DataParallel
from torch.optim.lr_scheduler import StepLR
from torch.utils import data


class Config(object):
    num_classes, max_epoch, batch_size, lr, lr_step = 5, 3, 10, 5e-2, 2
    easy_margin, checkpoints_path, print_freq = False, 'checkpoints', 2
    optimizer = 'sgd'


class ArcMarginProduct(nn.Module):
    def __init__(self, in_features, out_features, s=8.0, m=0.30, easy_margin=False):
        super(ArcMarginProduct, self).__init__()
        self.s, self.easy_margin = s, easy_margin
        self.weight = Parameter(torch.FloatTensor(out_features, in_features))
        nn.init.xavier_uniform_(self.weight)
        self.cos_m, self.sin_m = math.cos(m), math.sin(m)
        self.th, self.mm = math.cos(math.pi - m), math.sin(math.pi - m) * m

    def forward(self, input, label):
        cosine = F.linear(F.normalize(input), F.normalize(self.weight))
        sine = torch.sqrt((1.0 - torch.pow(cosine, 2)).clamp(1e-6, 1))
        phi = cosine * self.cos_m - sine * self.sin_m
        phi = torch.where(cosine > (0 if self.easy_margin else self.th), phi, cosine - (0 if self.easy_margin else self.mm))
        one_hot = torch.zeros(cosine.size(), device='cuda')
        one_hot.scatter_(1, label.view(-1, 1).long(), 1)
        return ((one_hot * phi) + ((1.0 - one_hot) * cosine)) * self.s


class FocalLoss(nn.Module):
    def forward(self, input, target):
        logp = F.cross_entropy(input, target, reduction='none')
        return ((1 - torch.exp(-logp)) ** 2 * logp).mean()


class Faces(data.Dataset):
    def __init__(self, n, phase='train'):
        rs = np.random.RandomState(n)
        self.y = rs.randint(0, 5, n)
        self.x = (rs.randn(n, 1, 6, 6) + 0.5 * self.y[:, None, None, None]).astype(np.float32)
        self.phase = phase

    def __getitem__(self, i):
        x = self.x[i]
        if self.phase == 'train' and random.random() > 0.5:
            x = x[:, :, ::-1].copy()
        return torch.from_numpy(x), int(self.y[i])

    def __len__(self):
        return len(self.y)


def save_model(model, save_path, name, iter_cnt):
    save_name = os.path.join(save_path, name + '_' + str(iter_cnt) + '.pth')
    try:
        state = model.module.state_dict()
    except AttributeError:
        state = model.state_dict()
    torch.save(state, save_name)
    return save_name


if __name__ == '__main__':
    opt = Config()
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    device = torch.device("cuda:0")
    trainloader = data.DataLoader(Faces(26), batch_size=opt.batch_size, shuffle=True)
    identity_list = data.DataLoader(Faces(13, 'test'), batch_size=4)
    model = nn.Sequential(nn.Conv2d(1, 6, 3, bias=False), nn.BatchNorm2d(6), nn.PReLU(), nn.Flatten(), nn.Dropout(0.2),
                          nn.Linear(96, 8), nn.BatchNorm1d(8))
    metric_fc = ArcMarginProduct(8, opt.num_classes, easy_margin=opt.easy_margin)
    criterion = FocalLoss()
    model.to(device)
    model = DataParallel(model, device_ids=[i for i in range(torch.cuda.device_count())], output_device=0)
    metric_fc.to(device)
    metric_fc = DataParallel(metric_fc)
    if not os.path.isdir(opt.checkpoints_path):
        os.mkdir(opt.checkpoints_path)
    optimizer = torch.optim.SGD([{'params': model.parameters()}, {'params': metric_fc.parameters()}],
                                lr=opt.lr, weight_decay=5e-4, momentum=0.9)
    scheduler = StepLR(optimizer, step_size=opt.lr_step, gamma=0.1)
    for i in range(opt.max_epoch):
        model.train()
        for ii, (data_input, label) in enumerate(trainloader):
            data_input, label = data_input.to(device), label.to(device).long()
            feature = model(data_input)
            output = metric_fc(feature, label)
            loss = criterion(output, label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if ii % opt.print_freq == 0:
                acc = np.mean((np.argmax(output.data.cpu().numpy(), axis=1) == label.data.cpu().numpy()).astype(int))
                print('train epoch {} iter {} loss {:.5f} acc {}'.format(i, ii, loss.item(), acc))
        scheduler.step()
        path = save_model(model, opt.checkpoints_path, 'resnet', i)
        model.eval()
        with torch.no_grad():
            feats = torch.cat([F.normalize(model(x.to(device))).cpu() for x, _ in identity_list])
        sims = feats.mm(feats.t())
        print('sim %.5f wrapped %s %s' % (sims.mean().item(), isinstance(model, nn.DataParallel), hasattr(metric_fc, 'module')))
    pretrained = {'module.' + k: v for k, v in torch.load(path).items()}
    model.load_state_dict(pretrained)
