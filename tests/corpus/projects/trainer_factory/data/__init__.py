from torch.utils.data import DataLoader

from .blobs import Blobs


def get_loaders(batch_size):
    sets = {split: Blobs(split) for split in ('train', 'val')}
    return {
        'train': DataLoader(sets['train'], batch_size=batch_size, shuffle=True),
        'val': DataLoader(sets['val'], batch_size=batch_size, shuffle=False),
    }
