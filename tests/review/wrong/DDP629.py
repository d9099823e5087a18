# A loader that has a sampler cannot shuffle as well. Lines of --- part the spellings; HEAD of test_recall.py stands above each.
loader = DataLoader(data, shuffle=True, sampler=DistributedSampler(data))
# ---
sampler = DistributedSampler(data, 2, 0)
loader = torch.utils.data.DataLoader(data, 8, True, sampler)
# ---
class T:
    def __init__(self):
        self.sampler = DistributedSampler(data)
        self.loader = DataLoader(data, sampler=self.sampler, shuffle=True)
