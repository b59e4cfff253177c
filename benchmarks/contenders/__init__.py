"""Whoever is measured: one module per contender, one function per scenario, each run in a process of its own.

A scenario function takes keyword arguments only, works inside `directory`, opens and closes what it uses, warms up
before it measures, and returns its measurements. A peer runs with its own defaults; telemetry and logs are silent.
"""
