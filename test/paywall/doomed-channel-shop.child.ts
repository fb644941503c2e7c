// A shop with payment channels in its own process, which kills itself at the named point of a request or a claim.
import { HTTPFacilitatorClient, type FacilitatorClient } from "@x402/core/server";
import Fastify from "fastify";
import { Pool } from "pg";
import { privateKeyToAccount } from "viem/accounts";
import { paywall, PostgresChannelStore, type Channel } from "../../packages/paywall/src/paywall.ts";

const { FACILITATOR = "", DATABASE_URL = "", NETWORK = "", PAY_TO = "" } = process.env;
const { PORT = "0", AUTHORIZER_KEY = "" } = process.env;
let dieAt = "";
const at = async (point: string): Promise<void> => {
  if (point !== dieAt) return;
  process.kill(process.pid, "SIGKILL");
  // The signal takes a moment to arrive; nothing may happen until then.
  await new Promise(() => undefined);
};

const remote = new HTTPFacilitatorClient({ url: FACILITATOR });
const facilitator: FacilitatorClient = {
  getSupported: () => remote.getSupported(),
  verify: (payload, requirements) => remote.verify(payload, requirements),
  settle: async (payload, requirements) => {
    const answer = await remote.settle(payload, requirements);
    await at(`${String(payload.payload["type"])} sent`);
    return answer;
  },
};

class DyingStore extends PostgresChannelStore {
  override async save(channel: Channel, version: number): Promise<boolean> {
    const isSaved = await super.save(channel, version);
    await at(channel.request ? "reserved" : "ended");
    return isSaved;
  }
}

const pool = new Pool({ connectionString: DATABASE_URL });
const store = new DyingStore((text, values) => pool.query(text, values));
await store.createTables();
const app = Fastify({ forceCloseConnections: true });
await app.register(paywall, {
  facilitator,
  networks: [NETWORK],
  payTo: PAY_TO,
  publicUrl: `http://127.0.0.1:${PORT}`,
  channels: {
    store,
    receiverAuthorizer: privateKeyToAccount(AUTHORIZER_KEY as `0x${string}`),
    withdrawDelay: "15m",
    claimEvery: "5m",
    minDeposit: "0.05",
  },
});
app.get("/words", { config: { paywall: { price: { channel: "0.001" } } } }, async () => {
  await at("working");
  return { words: 3, by: process.pid };
});
app.post("/die", async (request) => {
  dieAt = (request.query as { at: string }).at;
  return {};
});
app.post("/claim", async () => {
  await app.cashier.claims?.claim();
  return {};
});
await app.listen({ host: "127.0.0.1", port: Number(PORT) });
process.stdout.write("ready\n");
