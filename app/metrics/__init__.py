"""The same facts as telemetry, as Prometheus series."""
