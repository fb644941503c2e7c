// A setting of a version after the newest one, which only tests have. A test that imports this file imports the app and custody afterwards, with
// `await import`: they build their statements and schemas from the table of settings when they are loaded.
import { randomBytes } from "node:crypto";
import type { PrivateKeyAccount } from "viem/accounts";
import { AGENT_FIELDS, type Field } from "../../packages/rules/src/fields.ts";
import type { Kind } from "../../packages/rules/src/kinds.ts";
import { newestVersion, type AgentPolicyOrder } from "../../packages/rules/src/policy.ts";
import {
  orderDigest,
  policyOrder,
  rulesOfPolicy,
  typedDataOf,
  REQUESTED_FORM,
} from "../../server/core/orders.ts";
import type { TestApp } from "./app.ts";
import type { NewTestAgent } from "./owner.ts";

/** Payments that do not pass: the large ones, or all; null for none. */
const HALT: Kind<string | null, string | null, ""> = {
  name: "halt",
  unit: "",
  type: "string",
  column: "text",
  unset: null,
  fault: "validation_failed",
  schema: { type: "string", enum: ["large", "all"] },
  hint: "large or all",
  sign: (value) => value ?? "",
  readSigned: (text) => (text === "" ? null : text === "large" ? "large" : "all"),
  wire: (value) => value,
  readWire: (value) => ({ ok: true, value }),
  readTyped: (text) => text,
  allowsMore: (wanted, current) => rank(wanted) > rank(current),
  refuses: (value, { valueAtomic }) =>
    value === "all" || (value === "large" && valueAtomic > 1_000n),
  text: (value) => value ?? "none",
  readText: (text) => (text === "none" ? null : text === "large" ? "large" : "all"),
};
const rank = (value: string | null): number => (value === null ? 2 : value === "large" ? 1 : 0);
export const halt: Field = {
  name: "halt",
  member: "halt",
  kind: HALT,
  since: newestVersion() + 1,
  column: "halt",
  label: "Halt",
  help: "",
  refusal: "it is halted",
  describe: () => "It is halted.",
};
AGENT_FIELDS.push(halt);

/** Its column, as a migration would add it. */
export const HALT_COLUMN =
  "ALTER TABLE agents ADD COLUMN halt TEXT CHECK (halt IN ('large', 'all'))";

/** The newest policy of an agent. */
export async function policyOf({ pool: sql }: Pick<TestApp["database"], "pool">, agentId: string) {
  const { rows } = await sql.query<{
    document: AgentPolicyOrder & { halt?: string };
    version: number;
    signature: Buffer;
  }>(
    `SELECT document, version, signature FROM owner_orders
      WHERE agent_id = $1 AND kind = 'AgentPolicy' ORDER BY version DESC LIMIT 1`,
    [agentId],
  );
  if (!rows[0]) throw new Error("no policy");
  return rows[0];
}

/** Signs the next policy with this value of the new setting, as a request with such a member would. */
export async function signPolicy(
  { app, chain, database: { pool: sql } }: Pick<TestApp, "app" | "chain" | "database">,
  account: PrivateKeyAccount,
  agent: NewTestAgent,
  halt: string | null,
): Promise<void> {
  const { document, version } = await policyOf({ pool: sql }, agent.id);
  const { rows } = await sql.query<{ halt: string | null }>(
    "SELECT halt FROM agents WHERE id = $1",
    [agent.id],
  );
  const rules = rulesOfPolicy(document);
  const wanted = { ...rules, halt, status: "active" as const };
  const order = policyOrder({
    agentId: agent.id,
    walletAddress: agent.walletAddress,
    version: version + 1,
    name: document.name,
    rules: wanted,
    nonce: `0x${randomBytes(32).toString("hex")}`,
    deadlineSeconds: BigInt(Math.floor(Date.now() / 1000) + 600),
  });
  const { chainId } = chain;
  const digest = orderDigest("AgentPolicy", order, chainId, REQUESTED_FORM);
  const signature = await account.signTypedData(
    typedDataOf("AgentPolicy", order, chainId, REQUESTED_FORM) as never,
  );
  const owned = { address: account.address.toLowerCase(), chainId: 0 };
  await app.prisma.$transaction(async (tx) => {
    const current = { ...rules, halt: rows[0]?.halt ?? null, status: "active" as const };
    const signed = { chainId, order, digest, signature };
    await app.custody.reseal(tx, { agentId: agent.id, owner: owned }, { current, wanted, signed });
    await tx.$executeRaw`UPDATE agents SET halt = ${halt} WHERE id = ${agent.id}`;
    await tx.$executeRaw`
      INSERT INTO owner_orders (nonce, kind, owner_id, agent_id, version, chain_id, document, digest, deadline, signature, used_at)
      SELECT ${order.nonce}, 'AgentPolicy', a.owner_id, a.id, ${version + 1}, ${chainId}, ${JSON.stringify(order)}::jsonb,
             ${digest}, ${BigInt(order.deadline)}, ${Buffer.from(signature.slice(2), "hex")}, now()
        FROM agents a WHERE a.id = ${agent.id}`;
  });
}
