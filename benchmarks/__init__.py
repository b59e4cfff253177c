"""What perdure costs, beside the raw limit of the same disk and beside its peers: `python -m benchmarks`.

`sequential`, `concurrent`, `conversation`, `resume`, `importing`, `memory` and `mapping` are one benchmark each, with
its sizes and its budget; `postgres` is those on a server. `laboratory` starts their trials, `trial` is the process of
one, `contenders` says what is done in it, and `report` lays out the rows.
"""
