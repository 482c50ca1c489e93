"""Runs the package."""

import sys
from importlib import import_module

sys.stdout.write(import_module("greeting").words("Python") + "\n")
