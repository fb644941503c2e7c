import { HTTPFacilitatorClient } from "@x402/core/server";
import { BatchSettlementEvmScheme } from "@x402/evm/batch-settlement/server";
import { FileChannelStorage } from "@x402/evm/batch-settlement/server/file-storage";
import { paymentMiddleware, setSettlementOverrides, x402ResourceServer } from "@x402/express";
import express from "express";
import { privateKeyToAccount } from "viem/accounts";

const {
  FACILITATOR_URL = "http://localhost:3000/api/x402",
  PURSER_KEY,
  AUTHORIZER_KEY,
  PORT = "4002",
} = process.env;
const payTo = (process.env.PAY_TO ?? "0x70997970C51812dc3A010C7d01b50e0d17dc79C8") as `0x${string}`;
const network = "eip155:5042002";
const asset = "0x3600000000000000000000000000000000000000";
// The most of one request. Stock packages do not know Arc's USDC: name its EIP-712 domain.
const price = { amount: "1000", asset, extra: { name: "USDC", version: "2" } };

const headers: Record<string, string> = PURSER_KEY ? { Authorization: `Bearer ${PURSER_KEY}` } : {};
const facilitator = new HTTPFacilitatorClient({
  url: FACILITATOR_URL,
  createAuthHeaders: async () => ({ verify: headers, settle: headers, supported: headers }),
});
const channels = new BatchSettlementEvmScheme(payTo, {
  // Without a key of your own, the facilitator signs claims and refunds.
  ...(AUTHORIZER_KEY && {
    receiverAuthorizerSigner: privateKeyToAccount(AUTHORIZER_KEY as `0x${string}`),
  }),
  withdrawDelay: 86_400,
  storage: new FileChannelStorage({ directory: "./channels" }),
});
const app = express();
app.use(
  paymentMiddleware(
    {
      "GET /words": {
        accepts: { scheme: "batch-settlement", network, payTo, price },
        description: "Words",
      },
    },
    new x402ResourceServer(facilitator).register(network, channels),
  ),
);
app.get("/words", (_request, response) => {
  setSettlementOverrides(response, { amount: "700" }); // what this request used
  response.json({ words: "plain" });
});
app.listen(Number(PORT), (error) => {
  if (error) throw error;
  console.log(`Listening at http://localhost:${PORT}/words`);
});

const manager = channels.createChannelManager(facilitator, network, asset);
manager.start({
  claimIntervalSecs: 600,
  settleIntervalSecs: 3_600,
  onError: (error) => console.error(error),
});
process.once("SIGTERM", () => void manager.stop({ flush: true }).finally(() => process.exit()));
