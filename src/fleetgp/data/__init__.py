"""Data: synthetic fields, tables, sea-surface temperature, and partitions."""

from fleetgp.data.edge_list import read_edges
from fleetgp.data.erddap import download_mur
from fleetgp.data.formats import Reading
from fleetgp.data.partition import Shard, partition, partition_by_label
from fleetgp.data.sst import SeaSurface, load_sst
from fleetgp.data.synthetic import PAPER_THETA, PAPER_THETA0, Field, synthetic_field
from fleetgp.data.tables import Observations, read_observations

__all__ = [
    "PAPER_THETA",
    "PAPER_THETA0",
    "Field",
    "Observations",
    "Reading",
    "SeaSurface",
    "Shard",
    "download_mur",
    "load_sst",
    "partition",
    "partition_by_label",
    "read_edges",
    "read_observations",
    "synthetic_field",
]
