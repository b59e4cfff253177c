"""A back office that refunds orders: the agents of a project that is tested as a user of perdure would."""
