"""Fuzzing: what `tools/fuzz` is made of."""
