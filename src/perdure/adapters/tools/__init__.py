"""Tool calls: what a model asked for, performed once and recorded, whoever performs it."""
