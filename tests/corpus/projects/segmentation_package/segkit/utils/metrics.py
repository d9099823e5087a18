import torch


def confusion_matrix(guess, mask, classes, ignore):
    keep = mask != ignore
    index = classes * mask[keep] + guess[keep]
    return torch.bincount(index, minlength=classes ** 2).view(classes, classes).float()


def mean_iou(confusion):
    inter = confusion.diag()
    union = confusion.sum(0) + confusion.sum(1) - inter
    return (inter / union.clamp(min=1)).mean().item()
