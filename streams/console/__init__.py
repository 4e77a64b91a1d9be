"""The console: the ledger and what stands around it, as pages for people.

Read in this order: `serve` (one process), `app` (routes), `doors` (who may come in), `operators`
(who may change something), `pages` (every GET), `acts` (every POST). What pages show is read by the
functions of the commands; `overview` and `history` add what only a screen needs.
"""
