"""Claiming and draining: a process that executes whatever runs of its agents may go on, from any number of machines."""

from perdure.worker.worker import Limits, Worker

__all__ = ["Limits", "Worker"]
