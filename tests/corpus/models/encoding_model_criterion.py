# corpus: idioms = own/vendored class DataParallelModel; own/vendored class DataParallelCriterion; own/vendored class; criterion itself wrapped / loss module replicated; from torch.nn.parallel import DataParallel; hand-written replicate/scatter/parallel_apply/gather; mean over a data-dependent count (ignore_index, mask, num_pos, padding) - replica level; several models wrapped in one script; module level, under if __name__; other; lr_scheduler
# corpus: worlds = 2 3
"""Segmentation with outputs and losses that stay on their GPUs: DataParallelModel and DataParallelCriterion."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DataParallel, parallel_apply, replicate
from torch.nn.parallel.scatter_gather import scatter_kwargs
from torch.utils.data import DataLoader, TensorDataset


class DataParallelModel(DataParallel):
    """The outputs are not gathered, please use it with DataParallelCriterion."""

    def gather(self, outputs, output_device):
        return outputs

    def replicate(self, module, device_ids):
        modules = super(DataParallelModel, self).replicate(module, device_ids)
        return modules


class DataParallelCriterion(DataParallel):
    """The targets are scattered to the GPUs on which the outputs are."""

    def forward(self, inputs, *targets, **kwargs):
        if not self.device_ids:
            return self.module(inputs, *targets, **kwargs)
        targets, kwargs = self.scatter(targets, kwargs, self.device_ids)
        if len(self.device_ids) == 1:
            return self.module(inputs, *targets[0], **kwargs[0])
        replicas = self.replicate(self.module, self.device_ids[:len(inputs)])
        outputs = parallel_apply(replicas, [(i,) + tuple(t) for i, t in zip(inputs, targets)], kwargs)
        return sum(o.to(outputs[0].device) for o in outputs) / len(outputs)


class SegLoss(nn.Module):
    def __init__(self, aux_weight=0.2):
        super().__init__()
        self.aux_weight = aux_weight
        self.log_sigma = nn.Parameter(torch.zeros(2))

    def forward(self, outputs, target):
        main, aux = outputs
        l1 = F.cross_entropy(main, target, ignore_index=255)
        l2 = F.cross_entropy(aux, target, ignore_index=255)
        s = torch.exp(-self.log_sigma)
        return s[0] * l1 + s[1] * self.aux_weight * l2 + self.log_sigma.sum()


class FCN(nn.Module):
    def __init__(self, nclass=3):
        super().__init__()
        self.c1 = nn.Sequential(nn.Conv2d(2, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU())
        self.c2 = nn.Sequential(nn.Conv2d(6, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.Dropout2d(0.1))
        self.head, self.aux = nn.Conv2d(6, nclass, 1), nn.Conv2d(6, nclass, 1)

    def forward(self, x):
        a = self.c1(x)
        return self.head(self.c2(a)), self.aux(a)


class Trainer(object):
    def __init__(self, n=3):
        g = torch.Generator().manual_seed(3)
        x = torch.randn(18, 2, 6, 6, generator=g)
        y = (x[:, 0] > 0).long() + (x[:, 1] > 0.5).long()
        y[torch.rand(y.shape, generator=g) < 0.3] = 255
        self.loader = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)
        self.model = DataParallelModel(FCN().cuda()).cuda()
        self.criterion = DataParallelCriterion(SegLoss().cuda()).cuda()
        params = list(self.model.parameters()) + list(self.criterion.parameters())
        self.optimizer = torch.optim.SGD(params, lr=0.05, momentum=0.9, weight_decay=1e-4)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1, 0.5)

    def training(self, epoch):
        train_loss = 0.0
        self.model.train()
        for i, (image, target) in enumerate(self.loader):
            self.optimizer.zero_grad()
            outputs = self.model(image.cuda())
            loss = self.criterion(outputs, target.cuda())
            loss.backward()
            self.optimizer.step()
            train_loss += loss.item()
        self.scheduler.step()
        print('epoch %d loss %.5f pieces %d sigma %s' % (
            epoch, train_loss / (i + 1), len(outputs), [round(v, 4) for v in self.criterion.module.log_sigma.tolist()]))

    def validation(self):
        self.model.eval()
        right = total = 0
        with torch.no_grad():
            for image, target in self.loader:
                outputs = self.model(image.cuda())
                pred = torch.cat([o[0].max(1)[1].cpu() for o in outputs])
                ok = target != 255
                right, total = right + (pred == target)[ok].sum().item(), total + ok.sum().item()
        print('pixAcc: %.4f' % (right / total))


if __name__ == '__main__':
    torch.manual_seed(4)
    trainer = Trainer()
    for epoch in range(2):
        trainer.training(epoch)
        trainer.validation()
    torch.save({'state_dict': trainer.model.module.state_dict()}, 'fcn.pth')
