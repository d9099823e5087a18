__all__ = ['accuracy']


def accuracy(output, target):
    return (output.argmax(1) == target).float().mean() * 100.0
