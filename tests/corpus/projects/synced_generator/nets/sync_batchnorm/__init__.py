from .batchnorm import SynchronizedBatchNorm1d, SynchronizedBatchNorm2d, convert_model, set_eps_mode
from .replicate import DataParallelWithCallback, patch_replication_callback
