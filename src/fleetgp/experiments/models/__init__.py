"""What each choice of a model does to a map: the figures of docs/models.md, from drawn fields."""

from fleetgp.experiments.models.drawing import SECTIONS, draw_all

__all__ = ["SECTIONS", "draw_all"]
