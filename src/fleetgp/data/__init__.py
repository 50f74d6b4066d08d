"""Data: synthetic fields, partitions and shards. Reading files is `fleetgp.io`."""

from fleetgp.data.partition import Shard, partition, partition_by_label
from fleetgp.data.synthetic import PAPER_THETA, PAPER_THETA0, Field, synthetic_field

__all__ = [
    "PAPER_THETA",
    "PAPER_THETA0",
    "Field",
    "Shard",
    "partition",
    "partition_by_label",
    "synthetic_field",
]
