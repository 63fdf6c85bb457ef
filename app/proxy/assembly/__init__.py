"""One answer out of a stream: the engine is asked for events, the client gets what it asked for. Pure."""
