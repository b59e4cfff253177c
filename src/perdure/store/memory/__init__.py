"""The executable specification of the port: plain dictionaries and one lock. Nothing outlives the process."""

from perdure.store.memory.shelf import Shelf
from perdure.store.memory.store import MemoryStore, is_meant

__all__ = ["MemoryStore", "Shelf", "is_meant"]
