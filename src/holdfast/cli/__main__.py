"""`python -m holdfast.cli`, where the `holdfast` script is not on the path."""

from holdfast.cli.app import main

if __name__ == "__main__":
    main()
