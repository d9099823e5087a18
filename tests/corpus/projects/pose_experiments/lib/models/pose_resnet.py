import torch.nn as nn


class PoseResNet(nn.Module):
    def __init__(self, cfg):
        super(PoseResNet, self).__init__()
        self.body = nn.Sequential(nn.Conv2d(1, cfg.MODEL.WIDTH, 3, 2, 1), nn.BatchNorm2d(cfg.MODEL.WIDTH), nn.ReLU())
        self.final_layer = nn.ConvTranspose2d(cfg.MODEL.WIDTH, cfg.MODEL.JOINTS, 4, 2, 1)

    def forward(self, x):
        return self.final_layer(self.body(x))

    def init_weights(self):
        for m in self.modules():
            if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)):
                nn.init.normal_(m.weight, std=0.1)


def get_pose_net(cfg, is_train, **kwargs):
    model = PoseResNet(cfg)
    if is_train:
        model.init_weights()
    return model
