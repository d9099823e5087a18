import torch.nn.functional as F


class TripletLoss(object):
    def __init__(self, margin):
        self.margin = margin

    def __call__(self, feat, target):
        dist = (feat[:, None] - feat[None]).pow(2).sum(2).clamp(min=1e-12).sqrt()
        same = target[:, None] == target[None]
        dist_ap = (dist * same).max(1)[0]
        dist_an = (dist + 1e4 * same).min(1)[0]
        return F.relu(dist_ap - dist_an + self.margin).mean()
