"""The extra "cluster": all that works on a cluster can be imported. To start one takes too long here."""

import ray

import fleetgp as fg
from fleetgp.fleet import cluster
from fleetgp.fleet.backends import check_ray
from fleetgp.network.ray import crew, host, session

check_ray("this")
assert not ray.is_initialized()
assert all((fg.Fleet, cluster, crew, host, session))
