import fp from "fastify-plugin";
import { addressOf, isPrivateKey, sign } from "../../core/signatures.ts";
import { kidsInUse, walletsOf } from "./store.ts";
import { Custody, KeyRing } from "./custody.ts";
import { NotReady } from "../../infra/readiness.ts";

declare module "fastify" {
  interface FastifyInstance {
    /** Makes agents' wallets and signs with them; nothing else ever sees a private key. */
    custody: Custody;
  }
}

export default fp(
  async (app) => {
    app.decorate(
      "custody",
      new Custody({
        ring: new KeyRing(app.config.masterKeys, app.config.masterKeyActive),
        curve: { addressOf, isPrivateKey, sign },
        networks: app.config.networks,
        loadWallet: walletsOf(app.pool),
      }),
    );
    // A master key taken away before `keys:rotate` was done shows here, not at the first payment.
    app.readiness.add("custody", async () => {
      const configured = new Set(app.config.masterKeys.map(({ kid }) => kid));
      const missing = (await kidsInUse(app.prisma)).filter((kid) => !configured.has(kid));
      if (missing.length > 0)
        throw new NotReady("wallets are under a master key that is not configured");
      return "every wallet's master key is configured";
    });
  },
  { name: "custody" },
);
