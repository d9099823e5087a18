"""The rules of the check: one a file, by code and name; those of the table `refused_by_torch.py` stand here."""

IN_TABLE = ("DDP611", "DDP615", "DDP619", "DDP621", "DDP629", "DDP630")
