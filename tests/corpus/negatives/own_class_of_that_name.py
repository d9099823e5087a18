# corpus: idioms = own/vendored class
# corpus: answer = 0
"""A class of our own that is called DataParallel and has nothing to do with torch's."""
import numpy as np


class DataParallel:
    """Columns of a table that are transformed alike"""

    def __init__(self, *columns):
        self.columns = columns

    def map(self, function):
        return DataParallel(*(function(c) for c in self.columns))


table = DataParallel(np.arange(3.), np.ones(3))
print([c.tolist() for c in table.map(np.square).columns])
