"""Devices and processes: the mesh, collectives, start-up, the environment."""
