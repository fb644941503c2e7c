/** The doctor's checks of keys, the public URL, mail and traces. */
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-http";
import { fetch } from "undici";
import { privateKeyToAddress } from "viem/accounts";
import type { Config } from "../config.ts";
import { isKeysUnavailable, Kms } from "../infra/kms.ts";
import { SocketClient } from "../infra/private-socket.ts";
import { KeyRing, withPrivateKey } from "../plugins/custody/envelope.ts";
import { transportOf } from "../plugins/notifications/mail-server.ts";
import { RemoteVault } from "../plugins/custody/remote-vault.ts";
import { countWalletsByKid, kidsOfSecrets } from "../plugins/custody/store.ts";
import type { Database } from "./database.ts";
import { found, ok, warning, wrong, type Finding } from "./finding.ts";

const SAMPLE = 5;
const ASK_MS = 10_000;

/** The custody process, if the keys are in one. */
export const custodyOf = ({ custodySocket, networks, timings }: Config): RemoteVault | undefined =>
  custodySocket === undefined
    ? undefined
    : new RemoteVault({
        client: new SocketClient(custodySocket, timings),
        networks,
        timings,
        onTrouble: () => undefined,
      });

export async function checkKeys(
  { prisma }: Database,
  config: Config,
  { isFirstStart = false } = {},
): Promise<Finding[]> {
  const check = "master keys";
  const kms = new Kms();
  const remote = custodyOf(config);
  const findings = await found(
    check,
    async () => {
      const wallets = isFirstStart ? new Map<string, number>() : await countWalletsByKid(prisma);
      const ring = remote
        ? undefined
        : new KeyRing(config.masterKeys, config.masterKeyActive, { kms });
      const { active, kids } = remote
        ? await remote.keyNames()
        : { active: config.masterKeyActive, kids: ring?.kids ?? [] };
      const configured = new Set(kids);
      const missing = [...wallets.keys()].filter((kid) => !configured.has(kid));
      if (missing.length > 0)
        return wrong(
          check,
          `${missing.map((kid) => `${wallets.get(kid) ?? 0} wallets are under "${kid}"`).join(", ")}, which is not configured`,
          "Put the key back into MASTER_KEYS everywhere, then run npm run keys:rotate before you remove it.",
        );
      if (isFirstStart) return ok(check, `new wallets will be under "${active}"`);
      const secrets = await kidsOfSecrets(prisma);
      const lost = secrets.filter((kid) => !configured.has(kid));
      if (lost.length > 0)
        return wrong(
          check,
          `secrets of webhooks or of the service are under ${lost.map((kid) => `"${kid}"`).join(", ")}, which is not configured`,
          "Put the key back into MASTER_KEYS everywhere, then run npm run keys:rotate before you remove it.",
        );
      for (const kid of wallets.keys()) {
        // Keys in a separate custody process can only be opened there, and only for a signature, so they are not
        // sampled.
        const fault = ring && (await openSample(prisma, ring, kid));
        if (fault !== undefined)
          return wrong(
            check,
            fault,
            "The key with this name has changed, or the row was changed. Compare MASTER_KEYS with your copy.",
          );
      }
      const old = [...new Set([...wallets.keys(), ...secrets])].filter((kid) => kid !== active);
      return old.length > 0
        ? warning(
            check,
            `${ring ? "wallets open" : "the keys are there"}, but some wallets or secrets are still under ${old.map((kid) => `"${kid}"`).join(", ")}`,
            `Run npm run keys:rotate to move them to "${active}".`,
          )
        : ok(
            check,
            `every wallet is under "${active}"; ${ring ? "the newest open" : "the custody process confirms it"}`,
          );
    },
    {
      todo: "See the lines about the database. With CUSTODY_SOCKET, check that the custody process is running.",
    },
  );
  await remote?.close();
  await kms.close();
  return findings;
}

/** Opens the newest wallet of a kid: its wrapping and its key, whose address is compared. */
async function openSample(
  prisma: Database["prisma"],
  ring: KeyRing,
  kid: string,
): Promise<string | undefined> {
  const rows = await prisma.agentWallet.findMany({
    where: { kid },
    orderBy: { updatedAt: "desc" },
    take: SAMPLE,
    include: { agent: { select: { owner: { select: { address: true, chainId: true } } } } },
  });
  for (const row of rows) {
    const { owner } = row.agent;
    const name = {
      agentId: row.agentId,
      address: row.address,
      ownerAddress: owner.address,
      ownerChainId: Number(owner.chainId),
      policyDigest: row.policyDigest as `0x${string}`,
      rulesDigest: row.rulesDigest as `0x${string}`,
      revision: row.revision,
    };
    try {
      const address = await Promise.resolve(
        withPrivateKey(ring, name, row, (key) =>
          privateKeyToAddress(`0x${Buffer.from(key).toString("hex")}`),
        ),
      );
      if (address.toLowerCase() !== row.address)
        return `the wallet of ${row.agentId} has a different key`;
    } catch (error) {
      if (isKeysUnavailable(error)) throw error;
      return `the wallet of ${row.agentId} under "${kid}" cannot be decrypted`;
    }
  }
  return undefined;
}

/** Response headers that browsers must get, whichever proxy is in front. */
const HEADERS = ["content-security-policy", "x-content-type-options", "x-request-id"];

export async function checkPublicUrl(
  { publicUrl }: Config,
  { isFirstStart = false } = {},
): Promise<Finding[]> {
  const check = `PUBLIC_URL ${publicUrl}`;
  return found(
    check,
    async () => {
      const query = fetch(`${publicUrl}/api/ready`, { signal: AbortSignal.timeout(ASK_MS) });
      // A proxy without a service behind it returns 502, 503 or 504.
      const answer = await (isFirstStart ? query.catch(() => undefined) : query);
      if (!answer || (isFirstStart && answer.status >= 502))
        return ok(check, "does not respond yet: no replica was started on this database");
      const isHttps = publicUrl.startsWith("https:");
      const wanted = [...HEADERS, ...(isHttps ? ["strict-transport-security"] : [])];
      const missing = wanted.filter((name) => !answer.headers.has(name));
      const text = await answer.text();
      if (missing.includes("x-request-id") || !text.startsWith("{"))
        return wrong(
          check,
          `a different server responds there (${answer.status})`,
          "Point it at this service.",
        );
      if (isFirstStart)
        return warning(
          check,
          "a service responds although this database is empty",
          "Check DATABASE_URL: the database in use may be another one.",
        );
      if (missing.length > 0)
        return warning(
          check,
          `its responses lack ${missing.join(", ")}`,
          "The proxy in front removes headers. Configure it to forward them.",
        );
      const parts = JSON.parse(text) as {
        parts?: Record<string, { ok: boolean; detail: string }>;
      };
      const bad = Object.entries(parts.parts ?? {}).filter(([, part]) => !part.ok);
      if (answer.status !== 200)
        return wrong(
          check,
          `not ready: ${bad.map(([part, { detail }]) => `${part} ${detail}`).join(", ") || answer.status}`,
          "See the line of that part.",
        );
      return ok(check, "ready, with its headers");
    },
    {
      level: "warning",
      todo: "Check that a replica is running and that DNS and the proxy lead to it. It may not be reachable from inside a network.",
    },
  );
}

export async function checkMail({ mail }: Config): Promise<Finding[]> {
  if (mail === undefined) return [];
  return found(
    "mail",
    async () => {
      const transport = transportOf(mail);
      try {
        await transport.verify();
        return ok("mail", "the server accepts the user and password");
      } catch (error) {
        const { code = "no response" } = error as { code?: string };
        return wrong(
          "mail",
          `the server refuses the connection (${code})`,
          "Check SMTP_URL: host, port, user and password.",
        );
      } finally {
        transport.close();
      }
    },
    { todo: "Check SMTP_URL." },
  );
}

export async function checkTraces({ tracesUrl }: Config): Promise<Finding[]> {
  if (tracesUrl === undefined) return [];
  const todo =
    "Payments work without traces. Check OTEL_EXPORTER_OTLP_ENDPOINT and that the collector accepts OTLP over HTTP.";
  return found(
    "traces",
    async () => {
      // The SDK adds the headers and certificates of the other OTEL_* keys.
      const exporter = new OTLPTraceExporter({ url: tracesUrl, timeoutMillis: ASK_MS });
      const { error } = await new Promise<{ error?: Error & { code?: number } }>((resolve) =>
        exporter.export([], resolve),
      );
      await exporter.shutdown();
      return error === undefined
        ? ok("traces", "the collector accepts them")
        : warning("traces", `the collector returns ${error.code ?? error.message}`, todo);
    },
    { level: "warning", todo },
  );
}
