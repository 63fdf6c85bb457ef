"""The `paceline` command."""

# set by commands
