"""What functions of libraries do, as data: `what_is("os.makedirs")` is a row, `canonical` the spelling of a name."""

from dp2ddp.codemod.knowledge.functions import Does, FunctionRow, knows, what_is
from dp2ddp.codemod.knowledge.methods import MethodDoes, method
from dp2ddp.codemod.knowledge.names import canonical

__all__ = ["Does", "MethodDoes", "FunctionRow", "canonical", "knows", "method", "what_is"]
