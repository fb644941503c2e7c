import { hkdfSync } from "node:crypto";
import fp from "fastify-plugin";
import { privateKeyToAccount } from "viem/accounts";
import { paywall } from "../../../packages/paywall/src/paywall.ts";
import type { Config } from "../../config.ts";
import { SCHEMES } from "../../schemes/index.ts";
import { PostgresPaywallStore } from "./store.ts";

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
  "WWW-Authenticate": { statuses: [402], description: "The same price asked by MPP (`Payment`)" },
  "Payment-Receipt": {
    statuses: [200],
    description: "How a payment by MPP ended: base64url JSON",
  },
  "X-PAYMENT-RESPONSE": { statuses: [200, 402], description: "The same, by the name of x402 v1" },
};

/**
 * What binds the challenges of MPP. Derived from the active master key, so that replicas agree and no setting is new; a
 * rotation makes challenges of the last two minutes void, and whoever shows one is told a new one, unpaid.
 */
function challengeKey({ masterKeys, masterKeyActive }: Config): string {
  const active = masterKeys.find(({ kid }) => kid === masterKeyActive);
  if (!active) throw new Error("the paywall needs the active master key");
  const info = "purser: challenges of the paywall (MPP)";
  return Buffer.from(hkdfSync("sha256", active.key, Buffer.alloc(0), info, 32)).toString("hex");
}

/** Our own paid routes, settled by our own facilitator without a detour over HTTP. */
export default fp(
  async (app) => {
    const { config } = app;
    const [relayerKey] = config.relayerPrivateKeys;
    const relayer = relayerKey && privateKeyToAccount(relayerKey);
    // Unless DEMO_PAY_TO says otherwise the relayer is paid: what the demo earns pays for gas on Arc.
    const payTo = config.demoPayTo ?? relayer?.address;
    if (payTo === undefined) throw new Error("the paywall needs somebody to pay");
    // An offer is worth something where whoever is paid has signed it: of those keys ours is the relayer's alone.
    const isOurs = relayer?.address.toLowerCase() === payTo.toLowerCase();
    const store = new PostgresPaywallStore(app.prisma);
    app.jobs.addTask(
      "forget-paywall-notes",
      async () => app.log.info({ expired: await store.forgetOld() }, "old paywall notes deleted"),
      { cron: "51 * * * *", atStart: true },
    );
    app.addHook("onRoute", (route) => {
      if (route.config?.paywall) route.config = { ...route.config, answerHeaders: TOLD };
    });
    await app.register(paywall, {
      facilitator: app.facilitator.feeFreeInProcessClient(),
      networks: config.networks,
      payTo,
      schemes: SCHEMES,
      store,
      ...(relayer && isOurs && { receipts: { signer: relayer } }),
      mpp: { secret: challengeKey(config) },
      publicUrl: config.publicUrl,
      walletRpcUrl: (network) =>
        (config.local && config.networks.find(({ id }) => id === network.id)?.rpcUrls[0]) ??
        network.publicRpcUrl,
    });
  },
  { name: "paywall" },
);
