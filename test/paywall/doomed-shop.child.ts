// A merchant's app in its own process, which kills itself at the named point of a charge by use.
import { HTTPFacilitatorClient } from "@x402/core/server";
import Fastify from "fastify";
import { Pool } from "pg";
import { paywall } from "../../packages/paywall/src/paywall.ts";
import { createPrisma } from "../../server/infra/db/prisma.ts";
import { PostgresPaywallStore } from "../../server/plugins/paywall/store.ts";

const { DIE_AT, FACILITATOR = "", DATABASE_URL = "", NETWORK = "", PAY_TO = "" } = process.env;
const { PORT = "0", USED = "0.01" } = process.env;
const at = async (point: string): Promise<void> => {
  if (point !== DIE_AT) return;
  process.kill(process.pid, "SIGKILL");
  // The signal takes a moment to arrive; nothing may happen until then.
  await new Promise(() => undefined);
};

const remote = new HTTPFacilitatorClient({ url: FACILITATOR });
const facilitator: Pick<HTTPFacilitatorClient, "getSupported" | "verify" | "settle"> = {
  getSupported: () => remote.getSupported(),
  verify: async (payload, requirements) => {
    const answer = await remote.verify(payload, requirements);
    await at("verified");
    return answer;
  },
  settle: async (payload, requirements) => {
    await at("settling");
    const answer = remote.settle(payload, requirements);
    if (DIE_AT === "sent") {
      await new Promise((resolve) => setTimeout(resolve, 60));
      await at("sent");
    }
    await answer;
    await at("settled");
    return answer;
  },
};
const app = Fastify({ forceCloseConnections: true });
await app.register(paywall, {
  facilitator,
  networks: [NETWORK],
  payTo: PAY_TO,
  publicUrl: `http://127.0.0.1:${PORT}`,
  store: new PostgresPaywallStore(createPrisma(new Pool({ connectionString: DATABASE_URL }))),
});
app.get("/words", { config: { paywall: { price: { upTo: "0.05" } } } }, async (request) => {
  await at("working");
  request.payment?.charge(USED);
  return { words: 3 };
});
await app.listen({ host: "127.0.0.1", port: Number(PORT) });
process.stdout.write("ready\n");
