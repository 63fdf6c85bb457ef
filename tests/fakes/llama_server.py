#!/usr/bin/env python3
"""An executable stand-in for `llama-server` (build 11434) that fails on request.

It needs nothing but the standard library, so that it can be named as the engine of a service
under test. What it should do wrong is written beside the model file; see `fake_engine/scenario.py`.
A symbolic link to this file may carry its own `<link>.scenario.json` and `<link>.help.txt`.
"""

import sys

from fake_engine.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv))
