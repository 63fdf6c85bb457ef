"""`python -m app.cli`: the same command where its script is not on PATH."""

from app.cli import main

if __name__ == "__main__":
    main()
