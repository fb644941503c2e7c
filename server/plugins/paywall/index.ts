import fp from "fastify-plugin";
import { privateKeyToAddress } from "viem/accounts";
import { paywall } from "../../../packages/paywall/src/paywall.ts";
import { SCHEMES } from "../../schemes/index.ts";

/** Of what is sold: the protocol's own headers. */
const TOLD = {
  "PAYMENT-REQUIRED": {
    statuses: [402],
    description: "What it costs, and whom to pay: base64 JSON of x402 v2",
  },
  "PAYMENT-RESPONSE": {
    statuses: [200, 402],
    description: "How the payment ended: base64 JSON of x402 v2",
  },
  "X-PAYMENT-RESPONSE": { statuses: [200, 402], description: "The same, by the name of x402 v1" },
};

/** Our own paid routes, settled by our own facilitator without a detour over HTTP. */
export default fp(
  async (app) => {
    const { config } = app;
    const [relayer] = config.relayerPrivateKeys;
    // Unless DEMO_PAY_TO says otherwise the relayer is paid: what the demo earns pays for gas on Arc.
    const payTo = config.demoPayTo ?? (relayer && privateKeyToAddress(relayer));
    if (payTo === undefined) throw new Error("the paywall needs somebody to pay");
    app.addHook("onRoute", (route) => {
      if (route.config?.paywall) route.config = { ...route.config, answerHeaders: TOLD };
    });
    await app.register(paywall, {
      facilitator: app.facilitator.feeFreeInProcessClient(),
      networks: config.networks,
      payTo,
      schemes: SCHEMES,
      publicUrl: config.publicUrl,
      walletRpcUrl: (network) =>
        (config.local && config.networks.find(({ id }) => id === network.id)?.rpcUrls[0]) ??
        network.publicRpcUrl,
    });
  },
  { name: "paywall" },
);
