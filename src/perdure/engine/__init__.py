"""Acts on what `replay` decides: agents, steps, effects, and the runs they belong to."""
