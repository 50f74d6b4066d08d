"""What an agent keeps on its disk: a journal of observations, and checkpoints of its training."""
