import torch


def none(model):
    return model


def data(model):
    return torch.nn.DataParallel(model, device_ids=list(range(torch.cuda.device_count())))
