from .config import Config
from .hooks import *
from .runner import Runner
from .seed import set_random_seed
