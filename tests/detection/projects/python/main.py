"""Runs the package."""

import sys

from greeting import words

sys.stdout.write(words("Python") + "\n")
