"""Classes of libraries that derive from torch's DataParallel and DataLoader, and keep to their parts."""

from __future__ import annotations

WRAPPERS = ("torch_geometric.nn.DataParallel", "mmcv.parallel.MMDataParallel")
LOADERS = ("torch_geometric.loader.DataListLoader", "torch_geometric.loader.DataLoader")
