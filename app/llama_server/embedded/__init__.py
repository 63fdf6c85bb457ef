"""The embedded engine: the package `xllamacpp` behind llama-server's command line.

For hosts that have no `llama-server`. It is a program of its own, started as a child process:

    python -m app.llama_server.embedded -m model.gguf --port 8081 ...

What it promises (measured against llama-server build 11434):

- The flags of `flag_table.FLAGS`, with llama-server's names, values and messages. A flag that it
  cannot honour is an error that names it, exit 1; nothing is ignored in silence.
- Defaults are llama-server's (port 8080, slots automatic: four over one pool), except that it
  never becomes a router: without `-m` it exits 1. No configuration file and no `LLAMA_ARG_*`
  variable is read; of the environment only `LLAMA_API_KEY` is.
- `--help` and `--list-devices` answer on stdout, `--version` on stderr, each with exit 0.
- Exit codes: 0 after SIGTERM or SIGINT; 1 after a second one, after a failed load, for a port in
  use and for a bad command line; killed by the signal itself while it still loads.
"""
