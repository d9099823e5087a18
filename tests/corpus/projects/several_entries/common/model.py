import os

import torch
import torch.nn as nn


def create_model(args):
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1)).cuda()
    return nn.DataParallel(model) if args.multi_gpu else model


def unwrap(model):
    return model.module if isinstance(model, nn.DataParallel) else model


def save_model(model, path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    torch.save({'state': model.state_dict()}, path)


def load_state(path):
    state = torch.load(path, map_location='cpu')['state']
    return {name.replace('module.', '', 1): value for name, value in state.items()}


def load_model(model, path):
    unwrap(model).load_state_dict(load_state(path))
