"""What is read: tables, sea-surface temperature, edge lists, and downloads."""

from fleetgp.io.erddap import download_mur
from fleetgp.io.fields import SeaSurface, load_sst
from fleetgp.io.formats import Reading
from fleetgp.io.tables import ObservationTable, read_edges, read_observations

__all__ = ["ObservationTable", "Reading", "SeaSurface", "download_mur", "load_sst", "read_edges", "read_observations"]
