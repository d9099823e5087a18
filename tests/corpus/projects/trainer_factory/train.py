# corpus: idioms = nn.DataParallel; other helper function; returned directly from helper; device_count() > 1; DataLoader built in: other file (relative to the wrap); train loop / backward in: other file (relative to the wrap); dict or list of loaders
# corpus: idioms = best selection; module.state_dict() (no prefix); argparse; __name__ guard; torch.save; .item(); correct/total counters; optimizer created after wrap; lr_scheduler
# corpus: worlds = 2 3 4
# corpus: helpers = WholeBatchParallel
"""A model factory, a dict of loaders, a trainer: each in a file of its own."""
import argparse

import torch

from data import get_loaders
from engine import Trainer
from models import build_model

parser = argparse.ArgumentParser()
parser.add_argument('--arch', default='mlp', choices=['mlp', 'conv'])
parser.add_argument('--batch-size', type=int, default=12)
parser.add_argument('--epochs', type=int, default=2)
parser.add_argument('--lr', type=float, default=0.1)
parser.add_argument('--out', default='runs')


def main():
    args = parser.parse_args()
    torch.manual_seed(1)
    loaders = get_loaders(args.batch_size)
    model = build_model(args.arch, num_classes=4)
    trainer = Trainer(model, loaders, args)
    trainer.fit(args.epochs)


if __name__ == '__main__':
    main()
