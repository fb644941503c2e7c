import fp from "fastify-plugin";
import { addressOf, isPrivateKey, sign } from "../adapters/crypto/curve.ts";
import { transferDigest } from "../adapters/crypto/eip3009-digest.ts";
import { findWallet } from "../adapters/stores/wallets.ts";
import { Custody } from "../domain/custody/custody.ts";
import { KeyRing } from "../domain/custody/envelope.ts";

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
        curve: { addressOf, isPrivateKey, sign, transferDigest },
        networks: app.config.networks,
        loadWallet: (agentId) => findWallet(app.pool, agentId),
      }),
    );
  },
  { name: "custody", dependencies: ["db"] },
);
