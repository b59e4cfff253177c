"""The crash kit: an agent is killed at every point of its run in a real process, resumed, and judged."""
