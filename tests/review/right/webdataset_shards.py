"""WebDataset: shards are split by node and worker; epochs are counted in steps."""
import os

import torch
import torch.distributed as dist
import webdataset as wds
from torch.nn.parallel import DistributedDataParallel as DDP


def make_loader(urls, batch_size, workers, epoch_size):
    dataset = (
        wds.WebDataset(urls, resampled=True, nodesplitter=wds.split_by_node, shardshuffle=True)
        .shuffle(5000)
        .decode("pil")
        .to_tuple("jpg", "cls")
        .batched(batch_size)
    )
    loader = wds.WebLoader(dataset, batch_size=None, shuffle=False, num_workers=workers)
    return loader.unbatched().shuffle(1000).batched(batch_size).with_epoch(epoch_size // batch_size)


def main(args, net):
    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    model = DDP(net.cuda(), device_ids=[local_rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    loader = make_loader(args.urls, args.batch_size, args.workers, args.epoch_size // dist.get_world_size())
    for epoch in range(args.epochs):
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(images.cuda()), labels.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            torch.save(model.module.state_dict(), os.path.join(args.out, f"{epoch}.pt"))
    dist.destroy_process_group()
