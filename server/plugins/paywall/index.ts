import fp from "fastify-plugin";
import { privateKeyToAddress } from "viem/accounts";
import { paywall } from "../../../packages/paywall/src/paywall.ts";
import { NAMED_SCHEMES } from "../../schemes/index.ts";

/** Our own paid routes, settled by our own facilitator without a detour over HTTP. */
export default fp(
  async (app) => {
    const { config } = app;
    const [relayer] = config.relayerPrivateKeys;
    // Unless DEMO_PAY_TO says otherwise the relayer is paid: what the demo earns pays for gas on Arc.
    const payTo = config.demoPayTo ?? (relayer && privateKeyToAddress(relayer));
    if (payTo === undefined) throw new Error("the paywall needs somebody to pay");
    await app.register(paywall, {
      facilitator: app.facilitator.feeFreeInProcessClient(),
      networks: config.networks,
      payTo,
      schemes: NAMED_SCHEMES,
      publicUrl: config.publicUrl,
      walletRpcUrl: (network) =>
        (config.local && config.networks.find(({ id }) => id === network.id)?.rpcUrls[0]) ??
        network.publicRpcUrl,
    });
  },
  { name: "paywall" },
);
