"""The whole journey on virtual time: one seed, one history, and an oracle that shares no code.

The product's core, its agents, the partition tables with recovery and packed log, the publisher and
the ledger's adapters run as they are. Modelled are the service's database, Connect, Kafka, disks,
the ledger's PostgreSQL by its named statements, and the network; Stripe is the stand-in's engine.

Read in this order: `timeline` (time, processes, history), `world` (what a seed is made of), `story`
(what happens in it), `faults/` (what strikes), `oracle` and `checks` (what must be true in the
end), `mutants/` (planted bugs that the checks must notice). `python -m tests.simulation` runs it.

Not here: races between transactions, which a real PostgreSQL shows; billing cycles and deadlines;
topics that are created again or lose their end; damaged files; a request that leaves a day after
its check. Those are drilled on the real parts.
"""
