"""HTTP ingestion: a call with usage events → rows of the outbox, for producers without a Postgres.

In the order of a call: `keys` who it is, `limits` how much, `calls` what is in the body,
`cloudevents` the same in CloudEvents' words, `recorder` the transaction, `answers` what is told,
`app` the routes, `serve` the process.
"""
