"""Records in PostgreSQL, for workers on any number of machines."""

from perdure.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
