# corpus: idioms = nn.DataParallel; other helper function; returned directly from helper; isinstance(model, DataParallel); prefix handled by hand (strip/replace "module."); torch.load; dict or list of loaders; DataLoader built in: other file (relative to the wrap); train loop / backward in: other file (relative to the wrap)
# corpus: idioms = argparse; makedirs/mkdir; worker_init_fn; ReduceLROnPlateau/metric driven; own flag (args.multi_gpu / parallel / mGPUs ...)
# corpus: arguments = --multi-gpu --epochs 2
# corpus: worlds = 2
"""train.py, test.py and jobs/eval.py share the package common."""
from common.cli import parse_args
from common.data import build_loaders
from common.model import create_model, save_model
from common.steps import evaluate, train_one_epoch

import torch


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    loaders = build_loaders(args)
    model = create_model(args)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=args.lr)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
    for epoch in range(args.epochs):
        train_one_epoch(model, loaders['train'], optimizer)
        error = evaluate(model, loaders['val'])
        plateau.step(error)
        print('epoch', epoch, 'error %.4f' % error, 'lr', optimizer.param_groups[0]['lr'])
    save_model(model, args.ckpt)


if __name__ == '__main__':
    main()
