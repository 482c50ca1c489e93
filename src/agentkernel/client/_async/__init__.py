"""The asynchronous client. After a change run `tools/generate_sync_client.py`."""
