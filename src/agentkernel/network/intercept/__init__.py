"""HTTP that the gateway reads: each request judged, secrets swapped, TLS intercepted for it."""
