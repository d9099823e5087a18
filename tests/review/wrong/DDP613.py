# `find_unused_parameters=True` searches for what cannot be there, in every step. Lines of --- part the spellings; HEAD of test_recall.py stands above each.
from torchvision.models import resnet50
model = DDP(resnet50().cuda(), find_unused_parameters=True)
# ---
import torchvision
net = torchvision.models.vgg16(num_classes=3)
net = net.to('cuda')
model = DDP(net, device_ids=[0], find_unused_parameters=True)
# ---
from torchvision.models import resnet18
net = nn.SyncBatchNorm.convert_sync_batchnorm(resnet18())
model = DDP(net.cuda(), find_unused_parameters=True)
