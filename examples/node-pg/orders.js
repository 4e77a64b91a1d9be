// An order service with pg: each order and its usage are one transaction of one client.
import { createInterface } from "node:readline";
import pg from "pg";

const USAGE = `SELECT status, event_id, received_at
  FROM metering.record_usage($1, 'orders', $2, $3, on_conflict => 'raise')`;

async function place(client, orderId, tenant, items, fail) {
  await client.query("BEGIN");
  try {
    await client.query(
      "INSERT INTO orders VALUES ($1, $2, $3) ON CONFLICT (id) DO NOTHING",
      [orderId, tenant, items],
    );
    // metering begins
    const { rows } = await client.query(USAGE, [tenant, items, orderId]);
    const usage = rows[0]; // metering ends
    if (fail) throw new Error("the warehouse is on fire");
    await client.query("COMMIT");
    return usage;
  } catch (error) {
    await client.query("ROLLBACK");
    throw error;
  }
}

// Places an order for each line: id, tenant, items, and `fail` for one that does not work.
const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
await client.connect();
for await (const line of createInterface({ input: process.stdin })) {
  const [orderId, tenant, items, fail] = line.split(" ");
  try {
    const usage = await place(client, orderId, tenant, Number(items), fail);
    console.log(usage.status, usage.event_id, usage.received_at.toISOString());
  } catch (error) {
    console.log("rolled back:", error.message);
  }
}
await client.end();
