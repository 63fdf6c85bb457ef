"""A process that reads NVML when told to: `read` or `traffic` on a line, and the pickled snapshot in hex comes back."""

import pickle
import sys

from app.inventory.nvml import Nvml


def main() -> None:
    nvml = Nvml(pause_seconds=float(sys.argv[1]))
    for line in sys.stdin:
        snapshot = nvml.read(traffic=line.strip() == "traffic")
        print(pickle.dumps(snapshot).hex(), flush=True)


if __name__ == "__main__":
    main()
