"""Dockerfiles: what is written there, as steps. Pure: nothing here touches a disk or a sandbox."""
