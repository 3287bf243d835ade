"""`python -m holdproof.cli`."""

from holdproof.cli.app import main

main()
