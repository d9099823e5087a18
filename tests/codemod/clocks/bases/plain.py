import datetime, json, os, random, sys, time
import numpy
import torch
net = torch.nn.DataParallel(Net())
