from __future__ import absolute_import

from .plain import *
from .resmlp import *
