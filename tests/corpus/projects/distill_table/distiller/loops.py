import torch
import torch.nn.functional as F


def train_distill(epoch, train_loader, model_s, model_t, criterion_kd, optimizer, T=4.0):
    model_s.train()
    model_t.eval()
    for group in optimizer.param_groups:
        group['lr'] = 0.05 if epoch < 3 else 0.005
    total = 0.0
    for idx, (input, target) in enumerate(train_loader):
        input, target = input.cuda(), target.cuda()
        feat_s, logit_s = model_s(input, is_feat=True)
        with torch.no_grad():
            feat_t, logit_t = model_t(input, is_feat=True)
        loss_div = F.kl_div(F.log_softmax(logit_s / T, 1), F.softmax(logit_t / T, 1), reduction='batchmean') * T * T
        loss = F.cross_entropy(logit_s, target) + 0.5 * loss_div + criterion_kd(feat_s[-1], feat_t[-1].detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(train_loader)
