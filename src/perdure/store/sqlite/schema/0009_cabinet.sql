-- What adapters keep beside the runs: values by key, in the order of their bytes.
-- Rows are appended where they fit, and only the short keys are spread over an index.

CREATE TABLE cabinet (
    key    BLOB NOT NULL UNIQUE,
    value  BLOB NOT NULL,
    digest BLOB NOT NULL
) STRICT
