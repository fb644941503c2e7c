import fp from "fastify-plugin";
import { paywall } from "../../../packages/paywall/src/paywall.ts";
import { SCHEMES } from "../../schemes/index.ts";
import { PostgresPaywallStore } from "./store.ts";

/** The protocol's headers of paid routes. */
const DOCUMENTED_HEADERS = {
  "PAYMENT-REQUIRED": {
    statuses: [402],
    description: "Price and payee: base64 JSON of x402 v2",
  },
  "PAYMENT-RESPONSE": {
    statuses: [200, 402],
    description: "Result of the payment: base64 JSON of x402 v2",
  },
  "WWW-Authenticate": { statuses: [402], description: "The same price for MPP (`Payment`)" },
  "Payment-Receipt": {
    statuses: [200],
    description: "Result of an MPP payment: base64url JSON",
  },
  "X-PAYMENT-RESPONSE": { statuses: [200, 402], description: "The same, with the name of x402 v1" },
};

/** Our own paid routes, settled by our own facilitator without HTTP. */
export default fp(
  async (app) => {
    const { config } = app;
    const [relayer] = app.relayers;
    // Unless DEMO_PAY_TO is set the relayer is paid: the demo's income pays for gas on Arc.
    const payTo = config.demoPayTo ?? relayer?.address;
    if (payTo === undefined) throw new Error("the paywall needs somebody to pay");
    // A signed offer is only useful if the payee signed it, and we only have the relayer's key.
    const isOurs = relayer?.address.toLowerCase() === payTo.toLowerCase();
    // The secret that authenticates MPP challenges, the same for every replica.
    const challenges = await app.sharedSecret("paywall:challenges");
    const store = new PostgresPaywallStore(app.prisma);
    app.addHook("onRoute", (route) => {
      if (route.config?.paywall)
        route.config = { ...route.config, answerHeaders: DOCUMENTED_HEADERS };
    });
    await app.register(paywall, {
      facilitator: app.facilitator.inProcessClient(),
      networks: config.networks,
      payTo,
      schemes: SCHEMES,
      store,
      ...(relayer && isOurs && { receipts: { signer: relayer } }),
      mpp: { secret: Buffer.from(challenges).toString("hex") },
      publicUrl: config.publicUrl,
      walletRpcUrl: (network) =>
        (config.local && config.networks.find(({ id }) => id === network.id)?.rpcUrls[0]) ??
        network.publicRpcUrl,
      ...(config.local && { walletScript: "/api/local/demo-wallet.js" }),
    });
  },
  { name: "paywall" },
);
