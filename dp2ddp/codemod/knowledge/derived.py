"""Classes that derive from torch's DataParallel and DataLoader, in libraries, and keep to the parts of these."""

DATA_PARALLEL = "torch.nn.DataParallel"
WRAPPERS = ("torch_geometric.nn.DataParallel", "mmcv.parallel.MMDataParallel")
CLASSES = (DATA_PARALLEL, *WRAPPERS)
LOADER = "torch.utils.data.DataLoader"
LOADERS = ("torch_geometric.loader.DataListLoader", "torch_geometric.loader.DataLoader")
