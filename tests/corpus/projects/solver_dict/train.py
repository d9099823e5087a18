# corpus: idioms = torch.nn.DataParallel; DP(...).cuda(); dict or list of loaders; val loss of this process drives lr / early stop / rollback; DataLoader already yields whole batches (batch_size=1 or custom dataset batches); collate_fn; DataLoader subclass or own class called DataLoader; torch.load
# corpus: idioms = DataLoader built in: other file (relative to the wrap); train loop / backward in: other file (relative to the wrap); DataLoader built in: same scope (relative to the wrap); whole module pickled (wrapper or raw); early stopping; clip_grad; optimizer created after wrap; mean over a data-dependent count (ignore_index, mask, num_pos, padding) - replica level
# corpus: worlds = 2 3 4
"""Speech style: a solver gets a dict of loaders, whose data sets make the batches; halving, stopping, packages."""
import argparse

import torch

from data import AudioDataLoader, AudioDataset
from separator import Separator
from solver import Solver

parser = argparse.ArgumentParser('Separation')
parser.add_argument('--batch_size', type=int, default=5)
parser.add_argument('--epochs', type=int, default=3)
parser.add_argument('--half_lr', type=int, default=1)
parser.add_argument('--early_stop', type=int, default=1)
parser.add_argument('--max_norm', type=float, default=5.0)
parser.add_argument('--continue_from', default='')
parser.add_argument('--model_path', default='final.pth.tar')


def main(args):
    torch.manual_seed(3)
    tr_dataset = AudioDataset(23, args.batch_size, seed=0)
    cv_dataset = AudioDataset(8, batch_size=2, seed=1)
    tr_loader = AudioDataLoader(tr_dataset, batch_size=1, shuffle=True)
    cv_loader = AudioDataLoader(cv_dataset, batch_size=1)
    data = {'tr_loader': tr_loader, 'cv_loader': cv_loader}
    model = Separator(hidden=8)
    model = torch.nn.DataParallel(model)
    model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.5)
    solver = Solver(data, model, optimizer, args)
    solver.train()


if __name__ == '__main__':
    main(parser.parse_args())
