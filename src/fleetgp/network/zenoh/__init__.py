"""The network in the field: Eclipse Zenoh, one process per agent."""
