"""The only place that spells llama.cpp: flags, endpoints, log lines, builds."""
