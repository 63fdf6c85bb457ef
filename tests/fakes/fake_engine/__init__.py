"""The parts of the fake engine: command line, scenario, wire, bodies, server."""
