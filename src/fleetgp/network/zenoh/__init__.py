"""The network in the field: Eclipse Zenoh, one process per agent.

`session` opens a session and says who may say what in it, `door` guards its port, `links` connects neighbours,
`mail` sorts their frames by epoch, and `epoch` is a `Network`: the rounds of one task over these links.
"""
