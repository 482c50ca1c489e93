"""Whole directories: what they are made of, as tar and back, and on this machine's disk.

Nothing here needs more than the standard library: the daemon and the clients both use it.
"""
