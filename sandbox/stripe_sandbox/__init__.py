"""The Stripe stand-in: Stripe's metering, its memory and its ugly parts, on one machine.

Read in this order: `fact` (what it never forgets), `settings` (what may be otherwise), `errors`
(how it says no), `parameters` (what it checks), `engine` (keys, limits, lanes: pure, no IO),
`meter_events` and `newer` (what is recorded), `reports` (what is taken back), `summaries`,
`invoices`, `journal`, `faults`, then `server`, `delivery` and `control`, which put them on a
socket. `client` is the control API from outside.
"""
