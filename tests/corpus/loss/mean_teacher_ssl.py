# corpus: idioms = EMA / second copy of weights; wrapped model is frozen/eval-only (teacher, EMA teacher, target net); sum / none reduction normalised by hand; Variable(); several models wrapped in one script; mean over a data-dependent count - full batch level (after gather)
# corpus: worlds = 2 3 4
"""Mean teacher: labelled and unlabelled rows in one batch (-1 marks the latter), consistency ramp-up, EMA in the loop."""
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd import Variable
from torch.utils.data import DataLoader, TensorDataset

NO_LABEL = -1
global_step = 0
parser = argparse.ArgumentParser()
parser.add_argument('--epochs', type=int, default=3)
parser.add_argument('--consistency', type=float, default=5.)
parser.add_argument('--consistency-rampup', type=int, default=2)
parser.add_argument('--ema-decay', default=0.95, type=float)
parser.add_argument('--logit-distance-cost', default=.01, type=float)
args = parser.parse_args()


def create_model(ema=False):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.3))
            self.fc1, self.fc2 = nn.Linear(12, 3), nn.Linear(12, 3)

        def forward(self, x):
            x = self.body(x)
            return self.fc1(x), self.fc2(x)
    model = nn.DataParallel(Net()).cuda()
    if ema:
        for param in model.parameters():
            param.detach_()
    return model


def softmax_mse_loss(input_logits, target_logits):
    num_classes = input_logits.size()[1]
    return F.mse_loss(F.softmax(input_logits, 1), F.softmax(target_logits, 1), reduction='sum') / num_classes


def symmetric_mse_loss(input1, input2):
    return torch.sum((input1 - input2) ** 2) / input1.size()[1]


def sigmoid_rampup(current, rampup_length):
    current = np.clip(current, 0.0, rampup_length)
    return float(np.exp(-5.0 * (1.0 - current / rampup_length) ** 2))


def update_ema_variables(model, ema_model, alpha, global_step):
    alpha = min(1 - 1 / (global_step + 1), alpha)
    for ema_param, param in zip(ema_model.parameters(), model.parameters()):
        ema_param.data.mul_(alpha).add_(param.data, alpha=1 - alpha)


torch.manual_seed(6)
np.random.seed(6)
x = torch.randn(42, 6)
y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
y[torch.rand(42) < 0.6] = NO_LABEL
train_loader = DataLoader(TensorDataset(x, y), batch_size=12, shuffle=True)
model, ema_model = create_model(), create_model(ema=True)
ema_model.load_state_dict(model.state_dict())
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=2e-4, nesterov=True)
class_criterion = nn.CrossEntropyLoss(reduction='sum', ignore_index=NO_LABEL).cuda()

for epoch in range(args.epochs):
    model.train()
    ema_model.train()
    for i, (input, target) in enumerate(train_loader):
        ema_input = input + 0.05 * torch.randn_like(input)
        input_var = Variable(input + 0.05 * torch.randn_like(input))
        target_var = Variable(target.cuda(non_blocking=True))
        minibatch_size = len(target_var)
        labeled_minibatch_size = target_var.data.ne(NO_LABEL).sum().item()
        with torch.no_grad():
            ema_logit, _ = ema_model(ema_input)
        class_logit, cons_logit = model(input_var)
        class_loss = class_criterion(class_logit, target_var) / minibatch_size
        res_loss = args.logit_distance_cost * symmetric_mse_loss(class_logit, cons_logit) / minibatch_size
        weight = args.consistency * sigmoid_rampup(epoch, args.consistency_rampup)
        consistency_loss = weight * softmax_mse_loss(cons_logit, Variable(ema_logit.detach().data, requires_grad=False)) / minibatch_size
        loss = class_loss + consistency_loss + res_loss
        assert not (np.isnan(loss.item()) or loss.item() > 1e5), 'Loss explosion: {}'.format(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        global_step += 1
        update_ema_variables(model, ema_model, args.ema_decay, global_step)
        print('Epoch: [{0}][{1}/{2}]\tClass {3:.4f}\tCons {4:.5f}\tlabelled {5}/{6}'.format(
            epoch, i, len(train_loader), class_loss.item(), consistency_loss.item(), labeled_minibatch_size, minibatch_size))
    with torch.no_grad():
        ema_model.eval()
        pred = ema_model(x.cuda())[0].argmax(1).cpu()
    print('EMA prec %.3f' % (pred[y != NO_LABEL] == y[y != NO_LABEL]).float().mean().item())
    torch.save({'epoch': epoch + 1, 'global_step': global_step, 'state_dict': model.state_dict(),
                'ema_state_dict': ema_model.state_dict(), 'optimizer': optimizer.state_dict()}, 'checkpoint.{}.ckpt'.format(epoch + 1))
