// Goal: JSON text in a tool's body reaches the target as JSON, and the call stays the one that earlier versions stored.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import t from "tap";
import { hashBody } from "../../server/plugins/guardrails/types.ts";
import { FETCH_ROUTE } from "../../server/plugins/payments/index.ts";
import { toolResult } from "../helpers/tool-result.ts";
import { market } from "../x402-client/market.ts";

const made = await market(t, { listen: true });
const { agent, baseUrl, database, seller } = made;
const client = new Client({ name: "test", version: "1" });
await client.connect(
  new StreamableHTTPClientTransport(new URL(`${baseUrl}/mcp`), {
    requestInit: { headers: { authorization: `Bearer ${agent.apiKey}` } },
  }),
);
t.teardown(() => client.close());
const typeSent = () => seller.unpaidRequests.at(-1)?.headers["content-type"];

t.test("a tool's body", async (t) => {
  const call = { url: seller.url, method: "POST", maxAmount: "0.01" };
  for (const [given, type] of [
    [{ body: '{"n":1.0}' }, "application/json"],
    [{ body: " [1]" }, "application/json"],
    [{ body: "{plain" }, "text/plain; charset=utf-8"],
    [{ body: "7" }, "text/plain; charset=utf-8"],
    [{ body: "{}", headers: ["Content-Type: text/x"] }, "text/x"],
  ] as const) {
    const result = await client.callTool({ name: "x402_fetch", arguments: { ...call, ...given } });
    t.match(toolResult(result), { paid: true });
    t.equal(typeSent(), type, given.body);
  }
  const { rows } = await database.pool.query<{ hash: Buffer }>(
    "SELECT body_hash AS hash FROM idempotency_keys WHERE subject_id = $1 ORDER BY created_at LIMIT 1",
    [agent.id],
  );
  const hash = Buffer.from(hashBody(FETCH_ROUTE, { ...call, body: '{"n":1.0}' }));
  t.same(rows[0]?.hash, hash, "the type is no part of the call");
});

t.test("text of a caller of the API is sent as text", async (t) => {
  await made.fetch({ url: seller.url, method: "POST", maxAmount: "0.01", body: "{}" });
  t.equal(typeSent(), "text/plain; charset=utf-8");
});
