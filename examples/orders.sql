-- What every example needs beside the outbox: the service's own table.
CREATE TABLE orders (
    id text PRIMARY KEY,
    tenant_id text NOT NULL,
    items integer NOT NULL
);
