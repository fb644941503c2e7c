/** The audit of operators' actions: who, from where, and what. One hash chain, like the owners' audits. */
import { hostname, userInfo } from "node:os";
import { newId } from "../../core/ids.ts";
import type { Sql } from "../../infra/db/pool.ts";
import { jsonOf, type Db } from "../../infra/db/prisma.ts";
import { hex, NO_HASH } from "./store.ts";
import type { ChainHead, ChainRow } from "./verify.ts";

/** Actions that change something, each with its own members in `what`; never with the value of a secret. */
export type OperatorAct =
  /** A replica started with another version or configuration than before; contains names of keys. */
  | "service.configured"
  | "keys.rotation_began"
  | "keys.rotation_ended"
  | "ledger.difference_healed"
  | "ledger.read_again"
  /** An owner moves to another cell; each is recorded in both cells, or in the one that can change it. */
  | "owner.move_began"
  | "owner.move_copied"
  | "owner.move_canceled"
  | "owner.move_ended";

export interface OperatorEntry {
  seq: number;
  at: string;
  /** `wallet`: it was done on the operators' page, by this account; then user and host are the service's. */
  who: { user: string; host: string; operator: string | null; wallet?: string };
  action: string;
  what: Record<string, unknown>;
}

/** Who acts: `OPERATOR` of a command, or the account that signed in to the operators' page. */
export interface Operator {
  operator?: string | undefined;
  wallet?: string;
}

/** In the caller's transaction, so that neither the action nor its entry exists without the other. */
export async function actAsOperator(
  db: Db,
  by: Operator,
  action: OperatorAct,
  what: Record<string, unknown>,
): Promise<void> {
  // SQL: the function hashes the entry under the lock of the chain's head.
  await db.$queryRaw`SELECT purser_operator_act(${newId("opr")}, ${jsonOf(whoOf(by))}::jsonb, ${action}, ${jsonOf(what)}::jsonb)`;
}

/** The same where the transaction is not Prisma's. */
export async function actAsOperatorIn(
  sql: Sql,
  by: Operator,
  action: OperatorAct,
  what: Record<string, unknown>,
): Promise<void> {
  // SQL: as above.
  await sql.query("SELECT purser_operator_act($1, $2::jsonb, $3, $4::jsonb)", [
    newId("opr"),
    JSON.stringify(whoOf(by)),
    action,
    JSON.stringify(what),
  ]);
}

const whoOf = ({ operator, wallet }: Operator) => ({
  user: systemUser(),
  host: hostname(),
  operator: operator ?? null,
  wallet,
});

/** Prevents other entries until this transaction ends. */
export async function lockOperators(tx: Db): Promise<void> {
  // SQL: the locked row has to exist; Prisma would read it first.
  await tx.$queryRaw`INSERT INTO operator_head DEFAULT VALUES ON CONFLICT DO NOTHING`;
  // SQL: a row lock.
  await tx.$queryRaw`SELECT seq FROM operator_head FOR UPDATE`;
}

/** In a container the user id may have no name. */
function systemUser(): string {
  try {
    return userInfo().username;
  } catch {
    return `uid ${process.getuid?.() ?? "unknown"}`;
  }
}

const BATCH = 500;

export async function* readOperators(db: Db): AsyncGenerator<ChainRow> {
  for (let after = 0n; ;) {
    const rows = await db.operatorAction.findMany({
      where: { seq: { gt: after } },
      orderBy: { seq: "asc" },
      take: BATCH,
    });
    for (const { seq, id, action, body, prevHash, hash, createdAt } of rows) {
      after = seq;
      yield {
        seq: Number(seq),
        prevHash: hex(prevHash),
        hash: hex(hash),
        body,
        columns: { id, agentId: null, action, at: createdAt },
      };
    }
    if (rows.length < BATCH) return;
  }
}

export async function readOperatorHead(db: Db): Promise<ChainHead> {
  const head = await db.operatorHead.findFirst();
  return head ? { seq: Number(head.seq), hash: hex(head.hash) } : { seq: 0, hash: NO_HASH };
}

/** The newest first; those before `before`, if it is given. */
export async function lastOperatorActs(
  db: Db,
  options: { take: number; action?: OperatorAct; before?: bigint },
): Promise<OperatorEntry[]> {
  const { take, action, before } = options;
  const rows = await db.operatorAction.findMany({
    where: {
      ...(action === undefined ? {} : { action }),
      ...(before === undefined ? {} : { seq: { lt: before } }),
    },
    orderBy: { seq: "desc" },
    take,
    select: { body: true },
  });
  return rows.map(({ body }) => JSON.parse(body) as OperatorEntry);
}
