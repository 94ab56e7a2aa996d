"""`python -m nestcode` is the `nestcode` command."""

from nestcode.cli import main

if __name__ == "__main__":
    main()
