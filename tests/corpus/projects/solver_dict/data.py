import torch
import torch.utils.data as data


class AudioDataset(data.Dataset):
    """Each item is a batch of utterances of about one length."""

    def __init__(self, n, batch_size, seed):
        g = torch.Generator().manual_seed(seed)
        lengths = sorted(torch.randint(6, 14, (n,), generator=g).tolist(), reverse=True)
        waves = [torch.randn(length, generator=g) for length in lengths]
        self.minibatch = [waves[i:i + batch_size] for i in range(0, n, batch_size)]

    def __getitem__(self, index):
        return self.minibatch[index]

    def __len__(self):
        return len(self.minibatch)


class AudioDataLoader(data.DataLoader):
    def __init__(self, *args, **kwargs):
        super(AudioDataLoader, self).__init__(*args, **kwargs)
        self.collate_fn = _collate_fn


def _collate_fn(batch):
    assert len(batch) == 1
    waves = batch[0]
    lengths = torch.tensor([len(one) for one in waves])
    padded = torch.zeros(len(waves), int(lengths.max()))
    for i, one in enumerate(waves):
        padded[i, :len(one)] = one
    return padded, lengths, padded.cumsum(1).tanh()
