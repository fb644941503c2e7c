import { paywall } from "@purser/paywall";
import Fastify from "fastify";

const app = Fastify();
await app.register(paywall, {
  facilitator: process.env.FACILITATOR_URL ?? "http://localhost:3000/api/x402",
  networks: ["eip155:5042002"],
  payTo: "0x70997970C51812dc3A010C7d01b50e0d17dc79C8",
});
app.get(
  "/joke",
  { config: { paywall: { price: "0.01", description: "A joke" } } },
  async (request) => ({ joke: "Knock knock. Who's there? 402.", paidBy: request.payment?.payer }),
);
const port = Number(process.env.PORT ?? 4000);
await app.listen({ port });
console.log(`Listening at http://localhost:${port}/joke`);
