"""Useful utils"""
from .eval import *
from .logger import *
from .misc import *
