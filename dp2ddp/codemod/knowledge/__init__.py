"""What functions of libraries do, as data: `what_is("os.makedirs")` is a row, `canonical` the spelling of a name."""

from dp2ddp.codemod.knowledge.functions import Does, knows, what_is
from dp2ddp.codemod.knowledge.names import canonical

__all__ = ["Does", "canonical", "knows", "what_is"]
