"""The Stripe stand-in: Stripe's metering, its memory and its ugly parts, on one machine.

Read in this order: `fact` (what it never forgets), `errors` (how it says no), `parameters` (what it
checks), `engine` (keys, identifiers, lanes: pure, no IO), `summaries`, `journal`, `faults`, then
`server` and `control`, which put them on a socket. `client` is the control API from outside.
"""
