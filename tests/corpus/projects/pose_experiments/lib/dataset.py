import torch
from torch.utils.data import Dataset


class PointsDataset(Dataset):
    def __init__(self, cfg, is_train):
        g = torch.Generator().manual_seed(33 + is_train)
        n, joints = (35, cfg.MODEL.JOINTS) if is_train else (13, cfg.MODEL.JOINTS)
        self.heat = torch.zeros(n, joints, 64).scatter_(2, torch.randint(0, 64, (n, joints, 1), generator=g), 1.0).view(n, joints, 8, 8)
        self.image = self.heat.sum(1, keepdim=True) + 0.1 * torch.randn(n, 1, 8, 8, generator=g)
        self.visible = (torch.rand(n, joints, 1, generator=g) > 0.2).float()

    def __len__(self):
        return len(self.image)

    def __getitem__(self, idx):
        meta = {'index': idx, 'joints_vis': self.visible[idx]}
        return self.image[idx], self.heat[idx], self.visible[idx], meta


points = PointsDataset
