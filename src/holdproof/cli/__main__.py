"""`python -m holdproof.cli`, where the `holdproof` script is not on the path."""

from holdproof.cli.app import main

if __name__ == "__main__":
    main()
