"""Where other frameworks meet perdure: one package or module for each, imported only by whoever uses that framework."""
