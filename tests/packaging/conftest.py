"""What is in `uses` runs in clean environments, and is no test of this one."""

collect_ignore_glob = ["uses/*"]
