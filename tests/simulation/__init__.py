"""The whole journey on virtual time: one seed, one history, and an oracle that shares no code.

The product's core, its agents, the partition tables with recovery and packed log, the publisher and
the ledger's adapters run as they are. Modelled are the service's database, Connect, Kafka, disks,
the ledger's PostgreSQL by its named statements, and the network; Stripe is the stand-in's engine.

Read in this order: `timeline` (time, processes, history), `world` (what a seed is made of),
`meters` (the rule book, which changes once), `story` (what happens in it), `faults/` (what
strikes), `strikes` (what of it has to have met something), `oracle` and `checks` (what must be true
in the end), `mutants/` (planted bugs that the checks must notice), `invariants` (which check and
which bug belong to which promise of the design). `python -m tests.simulation` runs it.

Not here: races between transactions, which a real PostgreSQL shows; topics that are created again
or lose their end; damaged files; a request that leaves a day after its check. Those are drilled on
the real parts. Nowhere yet: a ledger that comes back from a backup while an invoice closes, or from
before its rule book changed.
"""
