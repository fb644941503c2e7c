import fp from "fastify-plugin";
import { Counter } from "prom-client";
import { addressOf, isPrivateKey, sign } from "../../core/signatures.ts";
import { isSignedByOwner } from "../../infra/chain/account-signature.ts";
import {
  findApproval,
  findSecond,
  findWithdrawal,
  hasPaidAt,
  kidsInUse,
  readEvidence,
  tellOwner,
  walletsOf,
} from "./store.ts";
import { Covers } from "./covers.ts";
import { Custody } from "./custody.ts";
import { KeyRing } from "./envelope.ts";
import { createSecretBox, type SecretBox } from "./secret-box.ts";
import { NotReady } from "../../infra/readiness.ts";

declare module "fastify" {
  interface FastifyInstance {
    /** Makes agents' wallets and signs with them; nothing else ever sees a private key. */
    custody: Custody;
    /** Seals what the service must keep secret in its own database. */
    secretBox: SecretBox;
  }
}

export default fp(
  async (app) => {
    const alarms = new Counter({
      name: "purser_policy_not_signed_total",
      help: "Signatures refused because the books do not agree with what the owner signed: look at each",
      registers: [app.metrics],
    });
    const covers = new Covers({
      load: walletsOf(app.pool),
      loadEvidence: (asked) => readEvidence(app.pool, asked),
      findWithdrawal: (agentId, nonce) => findWithdrawal(app.pool, agentId, nonce),
      findSecond: (agentId) => findSecond(app.prisma, agentId),
      findApproval: (agentId, approvalId) => findApproval(app.prisma, agentId, approvalId),
      isSigned: (owner, signed) => isSignedByOwner(app.chains, owner, signed),
    });
    const ring = new KeyRing(app.config.masterKeys, app.config.masterKeyActive);
    app.decorate("secretBox", createSecretBox(ring));
    app.decorate(
      "custody",
      new Custody({
        ring,
        curve: { addressOf, isPrivateKey, sign },
        networks: app.config.networks,
        covers,
        hasPaid: (paidAt) => hasPaidAt(app.prisma, paidAt),
        alarm: ({ agentId, error }) => {
          alarms.inc();
          app.log.error(
            { err: error, agentId },
            "a payment is not covered by its owner's signature",
          );
          tellOwner(app.pool, agentId).catch((failure: unknown) =>
            app.log.error({ err: failure, agentId }, "the owner was not told of an alarm"),
          );
        },
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
