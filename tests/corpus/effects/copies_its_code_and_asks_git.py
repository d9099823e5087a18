# corpus: idioms = nn.DataParallel; other helper function; returned directly from helper; len(gpu_ids)/num_gpus from config; rmtree/copy of code; subprocess/os.system; makedirs/mkdir; args.batch_size used outside the DataLoader (loss mask, steps, lr, asserts, meters)
# corpus: idioms = several optimizers; two or more backward() before one step, or forward twice before backward; several models wrapped in one script; argparse; text/csv/json log file; shuffle literal True; device_ids from config/args/variable
# corpus: worlds = 2 3
"""CycleGAN-like toy; at the start it keeps a copy of its code and of the state of the repository."""
import argparse
import glob
import os
import shutil
import subprocess
import sys

import torch
import torch.nn as nn
from torch.utils.data import DataLoader

p = argparse.ArgumentParser()
p.add_argument('--name', default='toy')
p.add_argument('--checkpoints_dir', default='./checkpoints')
p.add_argument('--gpu_ids', default='0,1,2')
p.add_argument('--batchSize', type=int, default=8)
p.add_argument('--niter', type=int, default=2)
opt = p.parse_args()
opt.gpu_ids = [int(i) for i in opt.gpu_ids.split(',') if int(i) >= 0][:torch.cuda.device_count()]
expr_dir = os.path.join(opt.checkpoints_dir, opt.name)


def prepare():
    if os.path.exists(expr_dir):
        print('removing', expr_dir)
        shutil.rmtree(expr_dir, ignore_errors=True)
    os.makedirs(os.path.join(expr_dir, 'code'))
    for path in glob.glob('*.md'):
        shutil.copy(path, os.path.join(expr_dir, 'code', path))
    shutil.copyfile(os.path.abspath(__file__), os.path.join(expr_dir, 'code', 'entry.py'))
    try:
        commit = subprocess.check_output(['git', 'rev-parse', '--short', 'HEAD'], stderr=subprocess.DEVNULL, cwd='/').decode().strip()
    except Exception:
        commit = 'unknown'
    os.system('echo started >> %s/started.txt' % expr_dir)
    lines = subprocess.run('wc -l < %s/started.txt' % expr_dir, shell=True, stdout=subprocess.PIPE).stdout
    print('commit', commit, 'started', int(lines), 'time(s)')
    with open(os.path.join(expr_dir, 'opt.txt'), 'wt') as f:
        f.write('------------ Options -------------\n')
        for k, v in sorted(vars(opt).items()):
            f.write('%s: %s\n' % (str(k), str(v)))


def init_net(net):
    if len(opt.gpu_ids) > 0:
        net.cuda(opt.gpu_ids[0])
        return nn.DataParallel(net, opt.gpu_ids)
    return net


prepare()
torch.manual_seed(2)
netG = init_net(nn.Sequential(nn.Linear(5, 12), nn.ReLU(True), nn.Linear(12, 5)))
netF = init_net(nn.Sequential(nn.Linear(5, 12), nn.ReLU(True), nn.Linear(12, 5)))
netD = init_net(nn.Sequential(nn.Linear(5, 12), nn.LeakyReLU(0.2), nn.Linear(12, 1)))
optimizer_G = torch.optim.Adam(list(netG.parameters()) + list(netF.parameters()), lr=2e-3, betas=(0.5, 0.999))
optimizer_D = torch.optim.Adam(netD.parameters(), lr=2e-3, betas=(0.5, 0.999))
data = torch.randn(25, 2, 5)
loader = DataLoader(data, batch_size=opt.batchSize, shuffle=True)
mse = nn.MSELoss()
total_steps = 0
for epoch in range(opt.niter):
    for i, pair in enumerate(loader):
        total_steps += opt.batchSize
        A, B = pair[:, 0].cuda(), pair[:, 1].cuda() * 2
        fake = netG(A)
        score = netD(fake)
        loss_G = mse(score, torch.ones_like(score)) + 10 * mse(netF(fake), A)
        optimizer_G.zero_grad()
        loss_G.backward()
        optimizer_G.step()
        optimizer_D.zero_grad()
        real, fake = netD(B), netD(fake.detach())
        loss_real = mse(real, torch.ones_like(real))
        loss_real.backward()
        loss_fake = mse(fake, torch.zeros_like(fake))
        loss_fake.backward()
        optimizer_D.step()
        if total_steps % (3 * opt.batchSize) == 0:
            print('epoch %d, step %d, G %.4f D %.4f' % (epoch, total_steps, loss_G.item(), (loss_real + loss_fake).item()))
    for label, net in (('G', netG), ('F', netF), ('D', netD)):
        torch.save(net.module.cpu().state_dict(), os.path.join(expr_dir, '%d_net_%s.pth' % (epoch, label)))
        net.cuda(opt.gpu_ids[0])
print(os.popen('ls %s' % expr_dir).read().split())
