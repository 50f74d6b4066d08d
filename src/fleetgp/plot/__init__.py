"""Figures of fleets with matplotlib (the extra "cli" has it). Each function draws, and returns the axes.

They draw on the axes that they get (`ax=`, `axes=`), or on a new figure that pyplot does not know of: nothing is shown,
and no global setting changes. `ax.figure.savefig("field.pdf")` writes it; for a window give axes of your own:

    figure, ax = plt.subplots()
    fg.plot.field(fleet, ax=ax)
    plt.show()

Colours stay apart for the colour-blind and in print: Okabe and Ito's for agents, viridis and cividis for values.
"""

from fleetgp.plot.charts import convergence, kernels, reliability, traffic
from fleetgp.plot.maps import field
from fleetgp.plot.maps import map_ as map  # noqa: A004 - `fg.plot.map`

__all__ = ["convergence", "field", "kernels", "map", "reliability", "traffic"]
