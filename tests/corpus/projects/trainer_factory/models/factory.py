import torch
import torch.nn as nn

from .nets import ConvNet, MLP

_FACTORY = {
    'mlp': MLP,
    'conv': ConvNet,
}


def build_model(arch, num_classes):
    model = _FACTORY[arch](num_classes=num_classes)
    if torch.cuda.is_available():
        model = model.cuda()
        if torch.cuda.device_count() > 1:
            model = nn.DataParallel(model)
    return model
