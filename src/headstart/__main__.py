"""``python -m headstart``."""

from .cli import main

main()
