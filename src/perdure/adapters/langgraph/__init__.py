"""LangGraph on perdure's store: `PerdureSaver` keeps the checkpoints of graphs.

How it keeps them. A checkpoint is one row; it names, for every channel, the piece that holds the value. A piece is
kept once under the digest of its content, so a value that did not change costs nothing. A list or a dict is a tree of
pieces: its items are pieces, and nodes name a few dozen items each. A node ends where the content says so, not at a
count; a list that grew, lost its first items or had one replaced thus shares all but a few nodes with the one before,
and a conversation of n messages takes the room of n messages, however many checkpoints it went through.

What is guaranteed. A checkpoint, its pieces and the mark that it is the newest of its namespace are one transaction,
and so are the writes of one task; when `put` or `put_writes` returns, that is synced. Writes are only ever seen through
their checkpoint. Whatever is read is compared with its digest; what is missing or damaged is an error, never `None`.

How it stays quick. A message that was sealed once is recognised as long as nothing in it changed (`likeness`), and
pieces that are known to be kept are not sent again (`stored`). Deleting and pruning give a thread a new edition in the
same transaction: whoever remembers pieces of another edition learns it when it writes, and sends everything again.

| module | what it owns |
|---|---|
| `saver` | the interface that LangGraph calls, sync and async |
| `rows` | keys and rows in the store's cabinet; what is one transaction |
| `sweep` | deleting, pruning and copying whole threads |
| `pieces` | values as trees of pieces, and back |
| `likeness`, `stored` | what need not be serialized, or sent, again |
"""

from __future__ import annotations

from perdure.adapters.langgraph.saver import PerdureSaver

__all__ = ["PerdureSaver"]
