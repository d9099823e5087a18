import mmap, random
import multiprocessing as mp
import torch
from multiprocessing.shared_memory import SharedMemory
from torch.utils.data import DataLoader, Dataset
net = torch.nn.DataParallel(Net())
class Counted(Dataset):
    def __getitem__(self, index):
        seen.put(index)
        return index
seen = mp.SimpleQueue()
for batch in DataLoader(Counted(), num_workers=2):
    net(batch)
