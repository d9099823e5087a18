# corpus: idioms = torch.nn.DataParallel; other helper function; returned directly from helper; DataLoader built in: other file (relative to the wrap); train loop / backward in: other file (relative to the wrap); optimizer stored inside the wrapped module; dict or list of loaders; yaml/yacs/json config
# corpus: idioms = device_ids from config/args/variable; len(gpu_ids)/num_gpus from config; model.module access; attributes/methods reached through .module in the training code; computed inside the wrapped forward, gathered, then .mean(); tensorboard; val loss of this process drives lr / early stop / rollback
# corpus: worlds = 3
"""Image to image in the form of pix2pixHD: the model owns its optimizers, a package has the rest."""
import json

import torch

from utils.builder import build_loader, build_model
from utils.trainer import Trainer

CONFIG = json.loads('{"gpu_ids": [0, 1, 2], "lr": 0.004, "batch": 7, "epochs": 2, "log_dir": "saved/log"}')


def main(config):
    torch.manual_seed(44)
    model = build_model(config)
    loaders = {phase: build_loader(config, n) for phase, n in (('train', 40), ('val', 16))}
    trainer = Trainer(model, loaders, config)
    trainer.train()


if __name__ == '__main__':
    main(CONFIG)
