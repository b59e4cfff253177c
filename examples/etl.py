"""A pipeline of four steps over 500,000 rows: extract, validate, transform, load.

    python etl.py &                       in the background, so that the same shell can kill it
    kill -9 %1                            in any of the four steps
    python etl.py                         goes on with that step; those before it are not repeated

The rows are made up; one in 500 is invalid on purpose. The steps hand each other files, not rows. The files are in the
run's working directory, which is saved together with each step's result: both are there after a crash, or neither. What
a killed step left half written is put aside.
"""

import csv
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import IO

import perdure

ROWS = 500_000
INVALID_EVERY = 500


@dataclass
class Summary:
    rows_extracted: int
    rows_invalid: int
    rows_processed: int
    total_cents: int


@perdure.step
def extract(rows: int) -> int:
    print(f"extract: {rows:,} rows", flush=True)
    with opened("extracted.csv", "w") as target:
        writer = csv.writer(target)
        for number in range(rows):
            amount = "n/a" if number % INVALID_EVERY == 0 else f"{number % 9_973}.{number % 100:02}"
            writer.writerow((number, f"customer-{number % 1_000}", amount))
    return rows


@perdure.step
def validate() -> int:
    print("validate", flush=True)
    invalid = 0
    with opened("extracted.csv") as source, opened("valid.csv", "w") as target:
        writer = csv.writer(target)
        for row in csv.reader(source):
            if row[2].replace(".", "").isdigit():
                writer.writerow(row)
            else:
                invalid += 1
    return invalid


@perdure.step
def transform() -> int:
    print("transform", flush=True)
    total = 0
    with opened("valid.csv") as source, opened("orders.csv", "w") as target:
        writer = csv.writer(target)
        for number, customer, amount in csv.reader(source):
            cents = int(amount.replace(".", ""))
            total += cents
            writer.writerow((number, customer.removeprefix("customer-"), cents))
    return total


@perdure.step
def load(database: str) -> int:
    """One transaction replaces the table: killed inside it, the old table is still there, so it is safe to repeat."""
    print(f"load: into {database}", flush=True)
    with opened("orders.csv") as source, closing(sqlite3.connect(database)) as warehouse, warehouse:
        warehouse.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, customer INTEGER, cents INTEGER)")
        warehouse.execute("DELETE FROM orders")
        return warehouse.executemany("INSERT INTO orders VALUES (?, ?, ?)", csv.reader(source)).rowcount


@perdure.agent
def pipeline(rows: int, database: str) -> Summary:
    perdure.workdir()  # opened here, used in the steps, saved with the result of each
    extracted = extract(rows)
    invalid = validate()
    total_cents = transform()
    return Summary(extracted, invalid, load(database), total_cents)


def opened(name: str, mode: str = "r") -> IO[str]:
    return (perdure.workdir() / name).open(mode, newline="")


if __name__ == "__main__":
    print(perdure.run(pipeline, ROWS, "warehouse.db"))
