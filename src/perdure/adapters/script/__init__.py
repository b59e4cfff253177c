"""A script that knows nothing of perdure, executed as a run: what it asks of models, and what its tools do."""
