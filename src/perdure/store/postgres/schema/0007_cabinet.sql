-- What adapters keep beside the runs: values by key, in the order of their bytes.

CREATE TABLE cabinet (
    key    BYTEA PRIMARY KEY,
    value  BYTEA NOT NULL,
    digest BYTEA NOT NULL
)
