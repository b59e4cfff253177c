"""`map`: progress inside long work. A hundred thousand items behind a durable cursor.

A map is one call of the run. Items are started in order and committed in order, a batch at a time: one record says how
far the map is, and the large value it refers to holds the results. `call` checks what was asked for, `source` walks
the items, `lanes` executes them, `walk` decides when to start and when to commit, `mapped` reads the results back.
"""

from perdure.engine.mapping.call import map_items
from perdure.engine.mapping.mapped import Mapped
from perdure.engine.mapping.source import Restartable

__all__ = ["Mapped", "Restartable", "map_items"]
