"""Move PyTorch training scripts from nn.DataParallel to DistributedDataParallel, and prove the sameness."""

__version__ = "0.1.0"
