"""Hydra's config, a logger that is off on other ranks, tqdm disabled there."""
import logging
import os

import hydra
import torch
import torch.distributed as dist
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from tqdm import tqdm

log = logging.getLogger(__name__)


def get_rank():
    if not dist.is_available() or not dist.is_initialized():
        return 0
    return dist.get_rank()


@hydra.main(config_path="configs", config_name="train", version_base=None)
def main(cfg: DictConfig):
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    distributed = int(os.environ.get("WORLD_SIZE", 1)) > 1
    if distributed:
        torch.cuda.set_device(local_rank)
        dist.init_process_group(cfg.dist.backend)
    if get_rank() > 0:
        log.setLevel(logging.ERROR)
    log.info("config\n%s", OmegaConf.to_yaml(cfg))
    device = torch.device("cuda", local_rank)
    torch.manual_seed(cfg.seed + get_rank())

    dataset = instantiate(cfg.dataset)
    sampler = DistributedSampler(dataset, shuffle=True, drop_last=True) if distributed else None
    loader = DataLoader(
        dataset,
        batch_size=cfg.batch_size // (dist.get_world_size() if distributed else 1),
        shuffle=(sampler is None),
        sampler=sampler,
        num_workers=cfg.workers,
    )
    model = instantiate(cfg.model).to(device)
    if distributed:
        model = DistributedDataParallel(model, device_ids=[local_rank], output_device=local_rank)
    optimizer = instantiate(cfg.optimizer, params=model.parameters())
    scaler = torch.amp.GradScaler("cuda", enabled=cfg.amp)
    step = 0
    for epoch in range(cfg.epochs):
        if sampler is not None:
            sampler.set_epoch(epoch)
        bar = tqdm(loader, desc=f"epoch {epoch}", disable=get_rank() != 0)
        for x, y in bar:
            with torch.amp.autocast("cuda", enabled=cfg.amp):
                loss = torch.nn.functional.cross_entropy(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            step += 1
            bar.set_postfix(loss=loss.item())
            if step % cfg.log_every == 0:
                log.info("step %d loss %.4f", step, loss.item())
        if get_rank() == 0:
            raw = model.module if distributed else model
            torch.save(raw.state_dict(), f"epoch{epoch}.pt")
    if distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
