"""What draws random numbers, and from which stream. One table for all facts.

tests/codemod/facts/test_draws.py holds it against Python, numpy and torch: each function is called, and is here if and
only if a stream stands elsewhere afterwards.
"""

from __future__ import annotations

from dp2ddp.codemod.facts.tables import of

# Streams of the host: DataParallel's threads draw from them in any order, so no two runs are alike even there.
HOST_STREAMS = ("random.", "numpy.random.")
# Of these modules, what draws nothing from their global stream: it sets the stream, or makes another.
NO_DRAWS = {
    *("seed", "set_state", "get_state", "setstate", "getstate", "test", "spawn", "bit_generator"),
    *("get_bit_generator", "set_bit_generator", "SeedSequence", "BitGenerator"),
    *("Random", "SystemRandom", "RandomState", "default_rng", "Generator"),
    *("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"),
}
GENERATORS = {
    *of("numpy.random", "default_rng RandomState Generator PCG64 PCG64DXSM MT19937 Philox SFC64"),
    "random.Random",
}
_ON_DEFAULT_DEVICE = "rand randn randint randperm normal"  # torch: where no tensor says on which device
_ON_GIVEN_DEVICE = "rand_like randn_like randint_like bernoulli multinomial poisson binomial"
_DROPOUTS = "dropout dropout_ alpha_dropout alpha_dropout_ feature_dropout feature_alpha_dropout rrelu rrelu_"
TORCH_MAKES = of("torch", _ON_DEFAULT_DEVICE)
TORCH_DRAWS = {
    *TORCH_MAKES,
    *of("torch", f"{_ON_GIVEN_DEVICE} {_DROPOUTS} feature_dropout_ feature_alpha_dropout_ native_dropout"),
    *of("torch.nn.functional", "dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout"),
    *of("torch.nn.functional", "gumbel_softmax rrelu rrelu_ fractional_max_pool2d fractional_max_pool3d"),
    *of("torch.nn.functional", "fractional_max_pool2d_with_indices fractional_max_pool3d_with_indices"),
    *of("torch.nn.functional", "scaled_dot_product_attention"),
    *of("torch.nn.init", "normal_ uniform_ trunc_normal_ orthogonal_ sparse_"),
    *of("torch.nn.init", "kaiming_normal_ kaiming_uniform_ xavier_normal_ xavier_uniform_"),
}
IN_PLACE_DRAWS = {
    *("normal_", "uniform_", "bernoulli_", "random_", "exponential_", "geometric_", "log_normal_", "cauchy_"),
}
DRAWING_METHODS = {*IN_PLACE_DRAWS, "bernoulli", "multinomial"}  # of a tensor
SAMPLING_METHODS = {"sample", "rsample", "sample_n"}  # of torch.distributions
# From the operating system: no seed makes two runs alike.
OUTSIDE_DRAWS = {
    *("os.urandom", "os.getrandom"),  # and fresh names: facts/clocks.py, IDENTITIES
    *of("secrets", "token_hex token_bytes token_urlsafe randbelow randbits choice"),
}


def host_stream(name: str) -> str | None:
    """The stream of the host that a function draws from: "random", "numpy.random"."""
    if name.rpartition(".")[2] in NO_DRAWS:
        return None
    return next((root.rstrip(".") for root in HOST_STREAMS if name.startswith(root)), None)


def draws(name: str, method: str = "") -> bool:
    """Whether a function, or a method of a tensor, draws from a stream that a script can seed."""
    return name in TORCH_DRAWS or host_stream(name) is not None or method in DRAWING_METHODS
