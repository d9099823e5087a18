# corpus: idioms = vendored SyncBN with DataParallelWithCallback / patch_replication_callback; own/vendored class DataParallelWithCallback; class method (__init__); device_ids from config/args/variable; dict / list / non-tensor / None / raw samples passed to the wrapped forward; tensors left on the CPU, DP.scatter does the copy; computed inside the wrapped forward, gathered, then .mean(); raw model kept and used beside the wrapper (optimizer, state_dict, eval, EMA); two or more backward() before one step, or forward twice before backward
# corpus: worlds = 2 3
"""Images from label maps: generator and discriminator in one model, batch norm over all GPUs, losses made in forward."""
import argparse

import torch
from torch.utils.data import DataLoader, Dataset

from nets.trainer import Pix2PixTrainer


class Maps(Dataset):
    def __init__(self, count, classes):
        g = torch.Generator().manual_seed(7)
        self.labels = torch.randint(0, classes, (count, 1, 8, 8), generator=g).float()
        self.images = torch.tanh(self.labels.expand(-1, 3, -1, -1) - 1 + 0.1 * torch.randn(count, 3, 8, 8, generator=g))

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return {'label': self.labels[i], 'image': self.images[i], 'path': 'map_%d.png' % i}


parser = argparse.ArgumentParser()
parser.add_argument('--lr', type=float, default=2e-3)
parser.add_argument('--label_nc', type=int, default=3)
parser.add_argument('--batchSize', type=int, default=7)
parser.add_argument('--gpu_ids', default=None)
opt = parser.parse_args()
opt.gpu_ids = [int(one) for one in opt.gpu_ids.split(',')] if opt.gpu_ids else list(range(torch.cuda.device_count()))

torch.manual_seed(3)
loader = DataLoader(Maps(17, opt.label_nc), batch_size=opt.batchSize, shuffle=True)
trainer = Pix2PixTrainer(opt)
for epoch in range(2):
    for i, data in enumerate(loader):
        trainer.run_generator_one_step(data)
        trainer.run_discriminator_one_step(data)
    told = ' '.join('%s: %.4f' % (name, value.mean().item()) for name, value in trainer.get_latest_losses().items())
    print('epoch %d %s generated %s' % (epoch, told, tuple(trainer.generated.shape)))
    trainer.pix2pix_model_on_one_gpu.save(epoch)
