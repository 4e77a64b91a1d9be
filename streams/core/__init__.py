"""The rules: plain functions from values to values. No clock, no environment, no input or output.

Read in the order of the journey:

`instant`: microseconds in UTC, and their one form on the wire.
`quantity`: decimal text as a whole number of the meter's units.
`identity`: what names a usage event for ever, and what makes two recordings equal.
`event`: what a record can be.
`recorded`: whether a record's fields are those that its source recorded.
`envelope`: the bytes of a record, read.
`catalogue`: the dated rule book, and the version that judges an event.
`aggregation`: what an event adds, by the mode of its meter.
`meters_file`: `meters.toml` as new lines of that book.
`interval`: how long a billing period is, in one text.
`billing`: a customer's periods, the deadline of an instant, and who cannot make it.
`edges`: every edge of time, under a catalogue.
`outlook`: whether an amount will be on its invoice.
`window`: the half-open window of an instant.
`verdict`: accepted, for a person, dead, or to wait.
`orders`: what operators decided about single records.
`decided`: what is known before a chunk is decided, and what follows from it.
`hold`: records that nothing may decide, and what skipping one means.
`growth`: which partition a key was on, and what its partition of now remembers of that.
`admission`: a chunk, decided record by record.
`mark`: what the state remembers of an identity.
`level`: readings that grow with what was accepted.
`output`: the records that others read.
`parked`: what a person or a programmer must look at.
`remedy`: what ends a dead item.
`dead_letter`: a dead meter event as others read it.
`fact`: what the ledger is told.
`fact_codec`: facts at rest until the ledger has them.
`lane`: requests to one customer's meter, in order.
`meter_event`: entries frozen into one request.
`live_meter`: the meter that Stripe has, against the catalogue.
`observation`: what was seen of an attempt.
`outcome`: what an attempt can mean.
`publication`: an observation, classified.
`retry`: when to try again, and whether at all.
`settlement`: what the ledger writes about an attempt.
`rejection`: reports that take back what was recorded.
`reconcile`: what Stripe's sums prove of amounts whose answers were lost.
`finding`: what contradicts the ledger, in words.
`remark`: something that needs a person.
`capture`: whether what is recorded reaches the ledger.
`standing`: how everything stands, in figures.
`risk`: whether money is at risk, and what to type.
`audit`: the proof that nothing was lost and nothing made up.
`audit_names`: the identities behind a difference.
`audit_units`: amounts of the registry against those that the ledger counted.
`skipped`: which of them a person decided to go on without.
`replay`: a log decided again, against what the ledger was told of it.
`trial`: a rule book tried on a log, in figures.
`statement_line`: a window's usage by where it is, and lines added up.
`statement`: a tenant's month, from what was recorded to what was billed.
`recorded_again`: which of them a restored registry recorded a second time.
"""
