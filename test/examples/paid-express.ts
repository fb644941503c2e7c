import { HTTPFacilitatorClient } from "@x402/core/server";
import { ExactEvmScheme } from "@x402/evm/exact/server";
import { paymentMiddleware, x402ResourceServer } from "@x402/express";
import express from "express";

const facilitator = new HTTPFacilitatorClient({
  url: process.env.FACILITATOR_URL ?? "http://localhost:3000/api/x402",
});
const network = "eip155:5042002";
// Stock packages do not know Arc's USDC: name the asset and its EIP-712 domain.
const price = {
  amount: "10000",
  asset: "0x3600000000000000000000000000000000000000",
  extra: { name: "USDC", version: "2" },
};
const payTo = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8";

const app = express();
app.use(
  paymentMiddleware(
    {
      "GET /weather": {
        accepts: { scheme: "exact", network, payTo, price },
        description: "Weather",
      },
    },
    new x402ResourceServer(facilitator).register(network, new ExactEvmScheme()),
  ),
);
app.get("/weather", (_request, response) => void response.json({ sky: "clear" }));
const port = Number(process.env.PORT ?? 4001);
app.listen(port, (error) => {
  if (error) throw error;
  console.log(`Listening at http://localhost:${port}/weather`);
});
