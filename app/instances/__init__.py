"""The only owner of child processes: one coroutine for each life of a server. DESIGN.md says how and why."""
