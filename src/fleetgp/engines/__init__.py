"""Local Gaussian processes: the dense, the moments and the Vecchia engine, and what another one needs."""

from fleetgp.engines.base import DataEngine, Engine, Evaluation, Posterior, Trend
from fleetgp.engines.dense.engine import DenseEngine
from fleetgp.engines.expert import register_engine

__all__ = ["DataEngine", "DenseEngine", "Engine", "Evaluation", "Posterior", "Trend", "register_engine"]
