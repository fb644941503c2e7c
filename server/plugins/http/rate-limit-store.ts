/** Shared rate-limit buckets in Postgres: a process leases several requests of a bucket at once. */
import { Coalescer } from "../../core/shared-answers.ts";
import type { Sql } from "../../infra/db/pool.ts";
import type { Lease, LeaseRequest } from "./rate-buckets.ts";

const TOGETHER = { maxBatch: 64, maxInFlight: 2 };

/** Concurrent lease requests share one statement. */
export function bucketLeases(sql: Sql): (request: LeaseRequest) => Promise<Lease> {
  const leases = new Coalescer<LeaseRequest, Lease>(async (requests) => {
    // SQL: a decision under the bucket's row lock, on the payment path; a prepared function call.
    const { rows } = await sql.query<{ key: string; granted: number; full_in_ms: number }>({
      name: "rate-lease",
      text: "SELECT key, granted, full_in_ms FROM purser_rate_lease($1, $2, $3)",
      values: [
        requests.map(({ key }) => key),
        requests.map(({ wanted }) => wanted),
        requests.map(({ perMinute }) => perMinute),
      ],
    });
    const byKey = new Map(rows.map((row) => [row.key, row]));
    return requests.map(({ key }) => {
      const row = byKey.get(key);
      return { granted: row?.granted ?? 0, fullInMs: row?.full_in_ms ?? 0 };
    });
  }, TOGETHER);
  return (request) => leases.fetch(request);
}
