import { setTimeout as sleep } from "node:timers/promises";
import fp from "fastify-plugin";
import { Counter } from "prom-client";
import { isKeysUnavailable } from "../../infra/kms.ts";
import { SocketClient } from "../../infra/private-socket.ts";
import { NotReady } from "../../infra/readiness.ts";
import { Custody } from "./custody.ts";
import type { KeyNames, KeyVault } from "./key-vault.ts";
import { RemoteVault } from "./remote-vault.ts";
import type { SecretBox } from "./secret-box.ts";
import { sharedSecret } from "./shared-secret.ts";
import {
  findServiceSecret,
  keepServiceSecret,
  kidsInUse,
  kidsOfSecrets,
  notifyOwner,
} from "./store.ts";
import { vaultHere } from "./wiring.ts";

declare module "fastify" {
  interface FastifyInstance {
    /** Creates agents' wallets and signs with them; nothing else ever sees a private key. */
    custody: Custody;
    /** Encrypts secrets that the service keeps in its own database. */
    secretBox: SecretBox;
    /** The names of the master keys; throws while the keys cannot be used. */
    masterKeyNames(): Promise<KeyNames>;
    /** 32 random bytes, the same for every replica and every start. */
    sharedSecret(purpose: string): Promise<Uint8Array>;
  }
}

export default fp(
  async (app) => {
    const alarms = new Counter({
      name: "purser_policy_not_signed_total",
      help: "Signatures refused because stored rules do not match the owner's signature: check each one",
      registers: [app.metrics],
    });
    const { custodySocket, networks, timings } = app.config;
    let vault: KeyVault;
    if (custodySocket === undefined) vault = vaultHere(app, { trustsCaller: true });
    else {
      const remote = new RemoteVault({
        client: new SocketClient(custodySocket, timings),
        networks,
        timings,
        onTrouble: (reason) => app.log.error({ reason }, "the custody process does not respond"),
      });
      app.addHook("onClose", () => remote.close());
      vault = remote;
    }
    app.decorate("secretBox", vault);
    app.decorate("masterKeyNames", () => vault.keyNames());
    app.decorate("sharedSecret", (purpose: string) =>
      sharedSecret(
        {
          box: vault,
          find: (wanted) => findServiceSecret(app.pool, wanted),
          keep: (...kept) => keepServiceSecret(app.prisma, ...kept),
          kids: async () => (await vault.keyNames()).kids,
          isAway: isKeysUnavailable,
          sleep: (ms) => sleep(ms),
          onLost: (lost, error) =>
            app.log.warn(
              { err: error, purpose: lost },
              "a secret cannot be decrypted; creating a new one",
            ),
        },
        purpose,
      ),
    );
    app.decorate(
      "custody",
      new Custody({
        vault,
        alarm: ({ agentId, error }) => {
          alarms.inc();
          app.log.error(
            { err: error, agentId },
            "a payment is not covered by the owner's signature",
          );
          notifyOwner(app.pool, agentId).catch((failure: unknown) =>
            app.log.error({ err: failure, agentId }, "the owner was not notified of an alarm"),
          );
        },
      }),
    );
    // A master key that was removed before `keys:rotate` finished is detected here, and not at the first payment.
    app.readiness.add("custody", async () => {
      const configured = new Set((await keysOf(vault)).kids);
      const isMissing = (kid: string): boolean => !configured.has(kid);
      if ((await kidsInUse(app.prisma)).some(isMissing))
        throw new NotReady("wallets are under a master key that is not configured");
      // No money depends on these secrets: the service continues without them, and reports it.
      if ((await kidsOfSecrets(app.prisma)).some(isMissing))
        return "degraded: secrets of webhooks or of the service are under a master key that is not configured";
      return "all required master keys are configured";
    });
  },
  { name: "custody" },
);

async function keysOf(vault: KeyVault): Promise<KeyNames> {
  try {
    return await vault.keyNames();
  } catch (error) {
    throw new NotReady("the key store cannot be reached", { cause: error });
  }
}
