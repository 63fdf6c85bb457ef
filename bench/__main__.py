"""`python -m bench`: what the relay costs. The other benchmarks are run by their own names."""

import sys

from bench.relay import main

if __name__ == "__main__":
    sys.exit(main(quick="--quick" in sys.argv))
