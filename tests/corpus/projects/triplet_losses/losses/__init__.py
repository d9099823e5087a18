import torch.nn.functional as F

from .center import CenterLoss
from .triplet import TripletLoss


def make_loss(name, num_classes):
    center = CenterLoss(num_classes, 8).cuda()
    triplet = TripletLoss(0.3)

    def total(score, feat, target):
        loss = F.cross_entropy(score, target)
        if 'triplet' in name:
            loss = loss + triplet(feat, target)
        if 'center' in name:
            loss = loss + 0.005 * center(feat, target)
        return loss

    return total, center
