"""What an operator runs beside the agents: a client, a launcher, an example fleet, a look at weak links."""
