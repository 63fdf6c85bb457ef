"""What `make bench` runs: figures, with their budgets beside them."""
