"""The network in the field: Eclipse Zenoh, one process per agent.

`session` opens a session and grants rights in it, `door` guards its port, `links` connects neighbours and sorts their
frames by epoch, and `network` is a `Network`: the rounds of one task over these links.
"""
