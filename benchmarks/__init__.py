"""What perdure costs, beside the raw limit of the same disk and beside its peers: `python -m benchmarks`."""
