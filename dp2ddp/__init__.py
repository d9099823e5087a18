"""Move PyTorch training scripts from nn.DataParallel to DistributedDataParallel, and prove that they train the same."""

__version__ = "0.1.0"
