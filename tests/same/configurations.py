"""All configurations: what each of them asks of FleetGP. Their data are in `data`, their calls in `calls`."""

from tests.same import methods, models, processes, sources
from tests.same.registry import CONFIGURATIONS, run

__all__ = ["CONFIGURATIONS", "methods", "models", "processes", "run", "sources"]
