import { paywall, PostgresChannelStore } from "@purser/paywall";
import Fastify from "fastify";
import { Pool } from "pg";
import { privateKeyToAccount } from "viem/accounts";

const pool = new Pool({ connectionString: process.env.DATABASE_URL });
const store = new PostgresChannelStore((text, values) => pool.query(text, values));
await store.createTables();

const app = Fastify();
await app.register(paywall, {
  facilitator: process.env.FACILITATOR_URL ?? "http://localhost:3000/api/x402",
  networks: ["eip155:5042002"],
  payTo: process.env.PAY_TO ?? "0x70997970C51812dc3A010C7d01b50e0d17dc79C8",
  channels: {
    store,
    // Signs claims and refunds. Keep the key until every channel is empty.
    receiverAuthorizer: privateKeyToAccount(process.env.AUTHORIZER_KEY as `0x${string}`),
  },
});
const price = { channel: "0.001", fixed: "0.002" };
app.get("/words", { config: { paywall: { price } } }, async (request) => {
  request.payment?.charge("0.0007"); // less than the price; without this line, all of it
  return { words: "plain" };
});
const port = Number(process.env.PORT ?? 4003);
await app.listen({ port });
console.log(`Listening at http://localhost:${port}/words`);
process.once("SIGTERM", () => void app.close().then(() => pool.end()));
