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

#: Readers that lived here before `fleetgp.io`; `fg.data.load_sst` still means `fg.io.load_sst`.
_READERS = ("Observations", "Reading", "SeaSurface", "download_mur", "load_sst", "read_edges", "read_observations")


def __getattr__(name: str) -> object:
    if name in _READERS:
        from importlib import import_module

        return getattr(import_module("fleetgp.io"), name)
    raise AttributeError(f"module 'fleetgp.data' has no attribute {name!r}")
