"""Networks: how agents exchange values, and the ledger of what they sent."""

from fleetgp.network.base import Clock, Network
from fleetgp.network.edges import Cargo, Incoming
from fleetgp.network.grouped import InProcess
from fleetgp.network.ledger import FRAMING, KINDS, SERVER, Ledger, Traffic
from fleetgp.network.loopback import Loopback
from fleetgp.network.reduction import MAXIMUM, MINIMUM, SUM, Merge, Reduced

__all__ = [
    "FRAMING",
    "KINDS",
    "MAXIMUM",
    "MINIMUM",
    "SERVER",
    "SUM",
    "Cargo",
    "Clock",
    "InProcess",
    "Incoming",
    "Ledger",
    "Loopback",
    "Merge",
    "Network",
    "Reduced",
    "Traffic",
]
