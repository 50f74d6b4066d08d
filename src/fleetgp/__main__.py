"""`python -m fleetgp` is the command `fleetgp`."""

from fleetgp.cli import main

if __name__ == "__main__":
    main()
