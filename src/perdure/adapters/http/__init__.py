"""Model calls where every library makes them: as requests over HTTP."""
