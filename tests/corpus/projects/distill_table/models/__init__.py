from .wrn import wrn_large, wrn_small

model_dict = {
    'wrn_small': wrn_small,
    'wrn_large': wrn_large,
}
