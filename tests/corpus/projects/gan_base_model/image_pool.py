import random

import torch


class ImagePool():
    """A history of generated images."""

    def __init__(self, pool_size):
        self.pool_size = pool_size
        self.images = []

    def query(self, images):
        return_images = []
        for image in images.data:
            image = torch.unsqueeze(image, 0)
            if len(self.images) < self.pool_size:
                self.images.append(image)
                return_images.append(image)
            elif random.uniform(0, 1) > 0.5:
                random_id = random.randint(0, self.pool_size - 1)
                return_images.append(self.images[random_id].clone())
                self.images[random_id] = image
            else:
                return_images.append(image)
        return torch.cat(return_images, 0)
