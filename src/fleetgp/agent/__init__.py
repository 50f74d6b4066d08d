"""The process that runs on a robot."""
