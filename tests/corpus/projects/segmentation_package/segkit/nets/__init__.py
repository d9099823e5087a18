from .unet import UNet


def unet(classes):
    return UNet(classes)
