"""The HTTP interface: one router for each resource. Only this folder knows HTTP statuses."""
