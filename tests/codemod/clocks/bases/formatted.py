import datetime, json, os, random, sys, time
import numpy
import torch

def format_time(seconds):
    days = int(seconds / 3600 / 24)
    seconds = seconds - days * 3600 * 24
    hours = int(seconds / 3600)
    f = ''
    i = 1
    if days > 0:
        f += str(days) + 'D'
        i += 1
    if hours > 0 and i <= 2:
        f += str(hours) + 'h'
        i += 1
    if f == '':
        f = '0ms'
    return f

net = torch.nn.DataParallel(Net())
