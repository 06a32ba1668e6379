"""`python -m aguia` is the `aguia` command."""

from aguia.cli import main

if __name__ == "__main__":
    main()
