import numpy as np
from torch.utils.data import DataLoader
from torch.utils.data.sampler import SubsetRandomSampler


class BaseDataLoader(DataLoader):
    def __init__(self, dataset, batch_size, shuffle, validation_split, num_workers=0):
        self.n_samples = len(dataset)
        idx_full = np.arange(self.n_samples)
        np.random.seed(0)
        np.random.shuffle(idx_full)
        len_valid = int(self.n_samples * validation_split)
        self.valid_sampler = SubsetRandomSampler(idx_full[:len_valid])
        self.init_kwargs = {'dataset': dataset, 'batch_size': batch_size, 'num_workers': num_workers}
        super().__init__(sampler=SubsetRandomSampler(idx_full[len_valid:]), **self.init_kwargs)

    def split_validation(self):
        return DataLoader(sampler=self.valid_sampler, **self.init_kwargs)
