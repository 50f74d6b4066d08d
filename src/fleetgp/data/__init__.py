"""Data: synthetic fields and partitions."""

from fleetgp.data.partition import Shard, partition
from fleetgp.data.synthetic import PAPER_THETA, PAPER_THETA0, Field, synthetic_field

__all__ = ["PAPER_THETA", "PAPER_THETA0", "Field", "Shard", "partition", "synthetic_field"]
