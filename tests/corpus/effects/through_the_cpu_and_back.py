# corpus: idioms = nn.DataParallel; function main/train/run; new name, raw model kept under another name; model moved to the CPU and back to save it; best selection; bestStateDict alias taken without copy; rmtree/copy of code; torch.load; torch.save
# corpus: idioms = optimizer created before wrap; raw model kept and used beside the wrapper (optimizer, state_dict, eval, EMA); ReduceLROnPlateau/metric driven; val loss of this process drives lr / early stop / rollback; unconditional; argparse
# corpus: worlds = 2 3 4
"""Speech enhancement: checkpoints are made on the CPU; resumes from them; keeps an alias of the best state."""
import argparse
import os
import shutil

import torch
import torch.nn as nn
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, TensorDataset

ap = argparse.ArgumentParser()
ap.add_argument('--resume', default='ckpt/latest.pth.tar')
ap.add_argument('--stages', type=int, default=2)
args = ap.parse_args()


def save_checkpoint(state, is_best, folder='ckpt', filename='latest.pth.tar'):
    if not os.path.exists(folder):
        os.makedirs(folder)
    torch.save(state, os.path.join(folder, filename))
    if is_best:
        shutil.copyfile(os.path.join(folder, filename), os.path.join(folder, 'model_best.pth.tar'))


def build():
    return nn.Sequential(nn.Conv1d(1, 6, 5, padding=2), nn.PReLU(), nn.BatchNorm1d(6), nn.Conv1d(6, 1, 5, padding=2))


def stage(number, noisy, clean):
    torch.manual_seed(number)
    loader = DataLoader(TensorDataset(noisy[:33], clean[:33]), batch_size=8, shuffle=True)
    model = build().cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    start, best = 0, float('inf')
    if os.path.isfile(args.resume):
        print("=> loading checkpoint '{}'".format(args.resume))
        checkpoint = torch.load(args.resume, map_location=lambda storage, loc: storage)
        start, best = checkpoint['epoch'], checkpoint['best']
        model.load_state_dict(checkpoint['state_dict'])
        optimizer.load_state_dict(checkpoint['optimizer'])
    scheduler = ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
    parallel = nn.DataParallel(model)
    best_state = model.state_dict()
    for epoch in range(start, start + 2):
        parallel.train()
        for a, b in loader:
            loss = nn.functional.l1_loss(parallel(a.cuda()), b.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        parallel.eval()
        with torch.no_grad():
            val = nn.functional.l1_loss(parallel(noisy[33:].cuda()), clean[33:].cuda()).item()
        scheduler.step(val)
        is_best = val < best
        if is_best:
            best, best_state = val, model.state_dict()  # not a copy
        model.cpu()
        save_checkpoint({'epoch': epoch + 1, 'best': best, 'state_dict': model.state_dict(), 'optimizer': optimizer.state_dict()}, is_best)
        model.cuda()
        print('stage %d epoch %d loss %.5f val %.5f lr %.5f %s' % (number, epoch, loss.item(), val, optimizer.param_groups[0]['lr'], '*' if is_best else ''))
    torch.save(best_state, 'best_state_%d.pth' % number)


def main():
    g = torch.Generator().manual_seed(6)
    clean = torch.randn(45, 1, 20, generator=g).cumsum(2) / 5
    noisy = clean + 0.2 * torch.randn(45, 1, 20, generator=g)
    for number in range(args.stages):
        stage(number, noisy, clean)


if __name__ == '__main__':
    main()
