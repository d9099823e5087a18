from .hint import HintLoss
from .similarity import Similarity

DISTILLERS = {'hint': HintLoss, 'similarity': Similarity}
