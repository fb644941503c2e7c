// A seller with payment channels in its own process: `ours` with the paywall and Postgres, or as published with express and
// its storage in memory.
import { HTTPFacilitatorClient, x402ResourceServer } from "@x402/core/server";
import { BatchSettlementEvmScheme } from "@x402/evm/batch-settlement/server";
import { paymentMiddleware, setSettlementOverrides } from "@x402/express";
import express from "express";
import Fastify from "fastify";
import { Pool } from "pg";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { paywall, PostgresChannelStore } from "../../packages/paywall/src/paywall.ts";

const { SELLER, FACILITATOR = "", DATABASE_URL = "", CHAIN_ID, USDC = "", PORT } = process.env;
const network = `eip155:${Number(CHAIN_ID)}` as const;
const authorizer = privateKeyToAccount(generatePrivateKey());
const payTo = (process.env["PAY_TO"] ??
  privateKeyToAccount(generatePrivateKey()).address) as `0x${string}`;
const CHARGED = 700n;

if (SELLER === "ours") {
  const pool = new Pool({ connectionString: DATABASE_URL, max: 20 });
  const store = new PostgresChannelStore((text, values) => pool.query(text, values));
  await store.createTables();
  const app = Fastify();
  await app.register(paywall, {
    facilitator: FACILITATOR,
    networks: [network],
    payTo,
    channels: { store, receiverAuthorizer: authorizer, minDeposit: "1" },
  });
  app.get("/paid", { config: { paywall: { price: { channel: "0.001" } } } }, async (request) => {
    request.payment?.charge(CHARGED);
    return { answer: 42 };
  });
  app.get("/ready", async () => "yes");
  await app.listen({ port: Number(PORT), host: "127.0.0.1" });
} else {
  const scheme = new BatchSettlementEvmScheme(payTo, { receiverAuthorizerSigner: authorizer });
  const extra = { name: "USDC", version: "2", minDeposit: "1000000" };
  const price = { amount: "1000", asset: USDC, extra };
  const server = new x402ResourceServer(new HTTPFacilitatorClient({ url: FACILITATOR }));
  const app = express();
  app.get("/ready", (_request, response) => void response.send("yes"));
  app.use(
    paymentMiddleware(
      { "GET /paid": { accepts: { scheme: "batch-settlement", network, payTo, price } } },
      server.register(network, scheme),
    ),
  );
  app.get("/paid", (_request, response) => {
    setSettlementOverrides(response, { amount: CHARGED.toString() });
    response.json({ answer: 42 });
  });
  // Its default of five seconds ends connections of slow clients.
  app.listen(Number(PORT), "127.0.0.1").keepAliveTimeout = 60_000;
}
process.on("SIGTERM", () => process.exit(0));
