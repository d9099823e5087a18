"""Whether training with several processes can work on this machine, and what to expect of it."""
