"""A fleet on a Ray cluster: groups of agents in worker processes, which send frames straight to each other.

`host` is a group's end of the network and the process around it, `crew` starts the hosts, gives them work and replaces
those that are lost, `session` is the cluster itself. Only what works on a cluster imports this package: it needs Ray.
"""
