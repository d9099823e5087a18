from torch.utils.data import DataLoader, DistributedSampler
from torchvision import datasets, transforms


def build_loaders(args):
    transform = transforms.ToTensor()
    train_set = datasets.ImageFolder(args.data + "/train", transform)
    val_set = datasets.ImageFolder(args.data + "/val", transform)
    train_sampler = DistributedSampler(train_set)
    val_sampler = DistributedSampler(val_set, shuffle=False)
    train_loader = DataLoader(train_set, args.batch_size, sampler=train_sampler, num_workers=8, drop_last=True)
    val_loader = DataLoader(val_set, args.batch_size, sampler=val_sampler, num_workers=8)
    return train_loader, val_loader
