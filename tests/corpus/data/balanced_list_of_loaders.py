# corpus: idioms = dict or list of loaders; random_split/subset; collate_fn; shuffle literal True; len(loader.dataset); device_ids from config/args/variable; batch size multiplied by the number of GPUs in the script; try/except around the step swallows errors and continues; mean over a data-dependent count - full batch level (after gather); np.random/random seed
# corpus: worlds = 2 3
"""Text recognition: a balanced batch is made of parts from a list of loaders, each starting again on its own."""
import random

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset

CHARS = 'abcdefgh'
SEED = 1111
random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)


class Words(Dataset):
    def __init__(self, name, n):
        self.rows = []
        for _ in range(n):
            word = ''.join(random.choice(CHARS) for _ in range(random.randint(2, 5)))
            img = torch.zeros(1, 8, 6 * len(word))
            for i, c in enumerate(word):
                img[0, CHARS.index(c), 6 * i:6 * i + 6] = 1.
            self.rows.append((img + 0.1 * torch.randn_like(img), word))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


class AlignCollate(object):
    """Keep the ratio, pad on the right to the widest of the batch with its last column."""

    def __call__(self, batch):
        images, labels = zip(*batch)
        width = max(image.size(2) for image in images)
        out = []
        for image in images:
            pad = image[:, :, -1:].expand(-1, -1, width - image.size(2))
            out.append(torch.cat([image, pad], 2))
        return torch.stack(out), labels


class Batch_Balanced_Dataset(object):
    def __init__(self, sources, ratios, batch_size):
        self.data_loader_list, self.dataloader_iter_list = [], []
        for dataset, ratio in zip(sources, ratios):
            number = int(len(dataset) * 0.8)
            indices = range(number)
            loader = DataLoader(Subset(dataset, indices), batch_size=max(round(batch_size * ratio), 1), shuffle=True,
                                collate_fn=AlignCollate())
            print('num total samples: %d x 0.8 = %d, per batch %d' % (len(dataset), len(loader.dataset), loader.batch_size))
            self.data_loader_list.append(loader)
            self.dataloader_iter_list.append(iter(loader))

    def get_batch(self):
        images, texts = [], []
        for i, data_loader_iter in enumerate(self.dataloader_iter_list):
            try:
                image, text = next(data_loader_iter)
            except StopIteration:
                self.dataloader_iter_list[i] = iter(self.data_loader_list[i])
                image, text = next(self.dataloader_iter_list[i])
            except ValueError:
                continue
            images.append(nn.functional.pad(image, (0, 30 - image.size(3))))
            texts += list(text)
        return torch.cat(images, 0), texts


class Recognizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.cnn = nn.Sequential(nn.Conv2d(1, 12, (8, 6), stride=(8, 6)), nn.BatchNorm2d(12), nn.ReLU())
        self.fc = nn.Linear(12, len(CHARS) + 1)

    def forward(self, x):
        return self.fc(self.cnn(x).squeeze(2).transpose(1, 2))


def encode(texts):
    out = torch.zeros(len(texts), 5).long()
    for i, t in enumerate(texts):
        out[i, :len(t)] = torch.tensor([CHARS.index(c) + 1 for c in t])
    return out


gpu_ids = [int(i) for i in ','.join(str(i) for i in range(torch.cuda.device_count())).split(',')]
batch_size = 5 * len(gpu_ids)
train_dataset = Batch_Balanced_Dataset([Words('MJ', 25), ConcatDataset([Words('ST', 11), Words('SA', 8)])], [0.6, 0.4], batch_size)
model = torch.nn.DataParallel(Recognizer(), device_ids=gpu_ids).cuda()
criterion = nn.CrossEntropyLoss(ignore_index=0)
optimizer = torch.optim.Adadelta(model.parameters(), lr=1., rho=0.95)
for iteration in range(10):
    image_tensors, labels = train_dataset.get_batch()
    target = encode(labels).cuda()
    preds = model(image_tensors.cuda())
    cost = criterion(preds.reshape(-1, preds.size(-1)), target.view(-1))
    model.zero_grad()
    cost.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 5)
    optimizer.step()
    if iteration % 3 == 0:
        correct = (preds.argmax(2) * (target > 0) == target).all(1).sum().item()
        print('[%d] loss %.5f words %d chars %d right %d (%s)' % (iteration, cost.item(), len(labels), int((target > 0).sum()), correct, labels[-1]))
