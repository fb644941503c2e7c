// Goal: an owner's signature in the audit log proves only the action it was made for: a moved, repeated or altered
// one is found, even when every hash is valid.
import t from "tap";
import { hashTypedData } from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { verifyDatabase } from "../../server/plugins/audit/verify-cli.ts";
import type { EntryBody } from "../../server/plugins/audit/authority.ts";
import { verifyChain, type ChainRow } from "../../server/plugins/audit/verify.ts";
import { spendAs } from "../helpers/call.ts";
import { testApp } from "../helpers/app.ts";
import { asOwner, createAgent, signIn } from "../helpers/owner.ts";
import { isFullTier } from "../helpers/tier.ts";
import { until } from "../helpers/until.ts";
import { documentedScript, rehash, rowsOf } from "./audit.helper.ts";

const ctx = await testApp(t);
const { app, chain } = ctx;
const newAddress = () => privateKeyToAccount(generatePrivateKey()).address;

interface Entry {
  body: EntryBody;
  order?: unknown;
}
type Facts = Record<string, unknown>;

/** A history with every signed action, and unsigned ones in between. */
async function history() {
  const owner = await signIn(ctx);
  const done = async (
    method: "POST" | "PUT" | "PATCH" | "DELETE",
    url: string,
    body?: object,
  ): Promise<Facts> => {
    const answer = await asOwner(app, owner, { method, url, ...(body && { body }) });
    if (answer.statusCode >= 300) throw new Error(`${method} ${url}: ${answer.body}`);
    return answer.json<Facts>();
  };
  const listed = newAddress();
  const agent = await createAgent(ctx, owner, { allowlist: [{ address: listed, label: "First" }] });
  await createAgent(ctx, owner, { name: "Other", dailyLimit: "30" });
  await chain.mint(agent.walletAddress, 9_000_000n);
  const url = `/api/agents/${agent.id}`;
  await done("PATCH", url, { dailyLimit: "20", perPaymentLimit: "5" });
  await done("POST", `${url}/allowlist`, {
    address: newAddress(),
    label: "Baker",
    dailyLimit: "2",
  });
  const signedList = [...payeesOf(3), { address: listed, label: "First" }];
  await done("PUT", `${url}/allowlist`, { allowlist: signedList });
  // So many that the audit entry has only their number.
  await done("PUT", `${url}/allowlist`, { allowlist: [...signedList, ...payeesOf(60)] });
  await done("PATCH", url, { dailyLimit: "15", name: "Renamed" });
  const expiresAt = new Date(Date.now() + 86_400_000).toISOString();
  const { key } = (await done("POST", `${url}/keys`, { label: "Second", expiresAt })) as {
    key: { id: string };
  };
  await done("POST", `${url}/keys/${key.id}/rotate`, {});
  const response = await spendAs(app, agent, {
    recipient: newAddress(),
    amount: "1.5",
    requestApproval: true,
  });
  const { approvalId } = response.json<{ approvalId: string }>();
  await done("POST", `/api/approvals/${approvalId}/approve`, {});
  const prepared = (await done("POST", `${url}/withdrawals/prepare`, { amount: "2" })) as {
    order: object;
    typedData: Parameters<typeof owner.account.signTypedData>[0];
  };
  const signature = await owner.account.signTypedData(prepared.typedData);
  await done("POST", `${url}/withdrawals`, { order: prepared.order, signature });
  const budget = await done("POST", "/api/budgets", {
    name: "Team",
    dailyLimit: "20",
    agents: [agent.id],
  });
  const budgetUrl = `/api/budgets/${String(budget["id"])}`;
  await done("PATCH", budgetUrl, { dailyLimit: "10", name: "Research" });
  await done("PATCH", budgetUrl, { dailyLimit: "15", weeklyLimit: "50", removeAgents: [agent.id] });
  await done("PATCH", budgetUrl, { weeklyLimit: "40" });
  await done("POST", "/api/budgets", { name: "Other", monthlyLimit: "7" });
  await done("DELETE", budgetUrl, {});
  await done("PATCH", url, { status: "paused" });
  await done("PATCH", url, { status: "active" });
  await done("PATCH", url, { status: "paused" });
  await done("PUT", `${url}/allowlist`, { allowlist: [{ address: listed, label: "Only" }] });
  await done("DELETE", `${url}/allowlist/${listed}`);
  await signIn(ctx, owner.account);
  const exported = async () =>
    rowsOf((await app.inject({ url: "/api/audit/export", headers: owner.headers })).body);
  await until(async () =>
    (await exported()).some(({ body }) => body.includes("withdrawal.settled")),
  );
  return { owner, rows: await exported() };
}

const payeesOf = (count: number) =>
  Array.from({ length: count }, () => ({ address: newAddress(), label: "One of many" }));

const entriesOf = (rows: ChainRow[]): Entry[] =>
  rows.map(({ body, order }) => ({
    body: JSON.parse(body) as EntryBody,
    ...(order === undefined ? {} : { order }),
  }));

/** Rebuilds the chain like an intruder: every entry in its place, every hash valid. */
const chained = (entries: Entry[]): ChainRow[] =>
  rehash(
    entries.map(({ body, order }, index) => ({
      seq: index + 1,
      prevHash: "",
      hash: "",
      body: JSON.stringify({ ...body, seq: index + 1 }),
      ...(order === undefined ? {} : { order }),
    })),
    0,
  );

const { owner, rows } = await history();
const real = entriesOf(rows);
const actions = real.map(({ body }) => body.action);
const indexOf = (action: string, nth = 0): number => {
  const places = actions.flatMap((one, index) => (one === action ? [index] : []));
  const place = places[nth];
  if (place === undefined) throw new Error(`no ${action} in ${actions.join(", ")}`);
  return place;
};
const entryOf = (action: string, nth = 0): Entry => real[indexOf(action, nth)] as Entry;

interface Forged {
  entries: Entry[];
  /** The index of the first invalid row. */
  at: number;
}
const changed = (index: number, change: (entry: Entry) => Entry): Entry[] =>
  real.map((entry, place) => (place === index ? change(structuredClone(entry)) : entry));
const withBody = (index: number, body: (body: EntryBody) => Partial<EntryBody>): Forged => ({
  entries: changed(index, (entry) => ({ ...entry, body: { ...entry.body, ...body(entry.body) } })),
  at: index,
});
/** Changes the facts after the action. */
const after = (index: number, facts: Facts): Forged =>
  withBody(index, (body) => ({ after: { ...body.after, ...facts } }));
/** Appends entries, of which the last is invalid. */
const appended = (...entries: Entry[]): Forged => ({
  entries: [...real, ...structuredClone(entries)],
  at: real.length + entries.length - 1,
});
const like = (entry: Entry, body: Partial<EntryBody>): Entry => ({
  ...entry,
  body: { ...entry.body, ...body },
});
const swapped = (one: number, other: number): Forged => {
  const [left, right] = [real[one] as Entry, real[other] as Entry];
  const orderOf = ({ order }: Entry) => (order === undefined ? {} : { order });
  const entries = [...real];
  entries[one] = { body: { ...left.body, proof: right.body.proof }, ...orderOf(right) };
  entries[other] = { body: { ...right.body, proof: left.body.proof }, ...orderOf(left) };
  return { entries, at: Math.min(one, other) };
};

const SIGNED = [
  "session.created",
  "policy.signed",
  "key.signed",
  "payment.approved",
  "withdrawal.ordered",
  "budget.signed",
];

t.test("the real history is valid, also when it is chained again", async (t) => {
  for (const action of [
    ...SIGNED,
    "agent.created",
    "agent.updated",
    "agent.paused",
    "agent.resumed",
    "allowlist.added",
    "allowlist.replaced",
    "allowlist.removed",
    "key.created",
    "key.rotated",
    "approval.granted",
    "withdrawal.settled",
    "budget.created",
    "budget.changed",
    "budget.archived",
  ])
    t.ok(actions.includes(action), action);
  t.match(await verifyChain(rows), { ok: true, byContract: 0 });
  t.match(await verifyChain(chained(real)), { ok: true, byContract: 0 });
});

t.test("a signature for one action proves no other", async (t) => {
  // Replaces the entry in place, so that the signature was not used before.
  for (const from of SIGNED)
    for (const to of [
      ...SIGNED,
      "second.named",
      "owner.moved",
      "owner.received",
      "resume.signed",
      "owner.resumed",
      "allow_again.signed",
      "owner.payee_allowed",
      "budget.archived",
      "budget.changed",
      "agent.updated",
    ]) {
      if (from === to) continue;
      const source = indexOf(from);
      const model = actions.includes(to) ? entryOf(to).body : entryOf(from).body;
      const { proof } = (real[source] as Entry).body;
      const forged = withBody(source, () => ({ ...model, action: to, proof }));
      const verdict = await verifyChain(chained(forged.entries));
      t.match(
        verdict,
        { ok: false, seq: source + 1 },
        `${from} as ${to}: ${JSON.stringify(verdict)}`,
      );
    }
});

const elsewhere = async (): Promise<Forged> => {
  const index = indexOf("policy.signed", 2);
  const { order } = real[index] as { order: { domain: object } };
  const typedData = {
    ...order,
    domain: { ...order.domain, name: "Another program" },
  } as Parameters<typeof owner.account.signTypedData>[0];
  const digest = hashTypedData(typedData);
  const signature = await owner.account.signTypedData(typedData);
  const signer = owner.account.address.toLowerCase();
  const proof = { kind: "order" as const, digest, signers: [{ signer, chainId: 0, signature }] };
  return {
    entries: changed(index, (entry) => ({ body: { ...entry.body, proof }, order: typedData })),
    at: index,
  };
};

t.test("every forgery is found by Purser's check and by the documented script", async (t) => {
  const paused = entryOf("agent.paused", 1);
  const tightened = entryOf("agent.updated", 1);
  const first = entryOf("policy.signed").body.agentId;
  const added = indexOf("allowlist.added");
  const replaced = indexOf("allowlist.replaced");
  const counted = indexOf("allowlist.replaced", 1);
  const unsigned = entryOf("allowlist.replaced", 2);
  const byContract = indexOf("policy.signed", 2);
  const cases: Record<string, Forged> = {
    "a sign-in, shown again": appended(entryOf("session.created")),
    "a policy, used again": appended(entryOf("policy.signed", 2)),
    "a key's order, used again": appended(entryOf("key.signed")),
    "an approval, used again": appended(entryOf("payment.approved")),
    "a withdrawal, ordered again": appended(entryOf("withdrawal.ordered")),
    "a withdrawal, ordered again under another name": appended(
      like(entryOf("withdrawal.ordered"), {
        after: { ...entryOf("withdrawal.ordered").body.after, paymentId: "pay_other" },
      }),
    ),
    "the signature of an order for another program": await elsewhere(),
    "signatures of two policies, swapped": swapped(
      indexOf("policy.signed", 2),
      indexOf("policy.signed", 3),
    ),
    "signatures of two agents, swapped": swapped(
      indexOf("policy.signed"),
      indexOf("policy.signed", 1),
    ),
    "signatures of two keys, swapped": swapped(indexOf("key.signed"), indexOf("key.signed", 1)),
    "signatures of a policy and a key, swapped": swapped(
      indexOf("policy.signed", 2),
      indexOf("key.signed"),
    ),
    "a policy's agent": withBody(indexOf("policy.signed", 2), () => ({
      agentId: entryOf("policy.signed", 1).body.agentId,
    })),
    "a policy's version": after(indexOf("policy.signed", 2), { version: 7 }),
    "a policy's nonce": after(indexOf("policy.signed", 2), { nonce: `0x${"1".repeat(64)}` }),
    "a new agent's limit": after(indexOf("agent.created"), { dailyLimit: "1000" }),
    "a new agent's wallet": after(indexOf("agent.created"), { walletAddress: newAddress() }),
    "a new agent's network": after(indexOf("agent.created"), { network: "eip155:1" }),
    "a new agent's name": after(indexOf("agent.created"), { name: "Another" }),
    "a new agent's payees": after(indexOf("agent.created"), { allowlist: [] }),
    "a raised limit": after(indexOf("agent.updated"), { dailyLimit: "21" }),
    "a raised limit, lower than was signed": after(indexOf("agent.updated"), { dailyLimit: "19" }),
    "a tightened limit that loosens": after(indexOf("agent.updated", 1), { dailyLimit: "500" }),
    "a payee's address": after(added, { address: newAddress() }),
    "a payee's limit": after(added, { dailyLimit: "200" }),
    "a payee's label": after(added, { label: "Butcher" }),
    "a key's label": after(indexOf("key.created"), { label: "Third" }),
    "a key's end": after(indexOf("key.created"), { expiresAt: null }),
    "a rotated key's label": after(indexOf("key.rotated"), { label: "Third" }),
    "a key as a connection": withBody(indexOf("key.created"), () => ({
      action: "connection.granted",
    })),
    "an approval's amount": after(indexOf("approval.granted"), { amount: "15" }),
    "an approval's payee": after(indexOf("approval.granted"), { payee: newAddress() }),
    "an approval's site": after(indexOf("approval.granted"), { site: "https://a.example" }),
    "an approval's number": after(indexOf("approval.granted"), { approvalId: "apr_other" }),
    "a withdrawal's amount": after(indexOf("withdrawal.ordered"), { amountAtomic: "9000000" }),
    "a withdrawal's payee": after(indexOf("withdrawal.ordered"), {
      to: newAddress().toLowerCase(),
    }),
    "a withdrawal's network": after(indexOf("withdrawal.ordered"), { network: "eip155:1" }),
    "a withdrawal's agent": withBody(indexOf("withdrawal.ordered"), () => ({
      agentId: entryOf("policy.signed", 1).body.agentId,
    })),
    "a withdrawal's end": after(indexOf("withdrawal.settled"), { amountAtomic: "1" }),
    "a settled withdrawal without an order": appended(
      like(entryOf("withdrawal.settled"), {
        after: { ...entryOf("withdrawal.settled").body.after, paymentId: "pay_other" },
      }),
    ),
    "a limit raised without an order": appended(
      like(tightened, { before: { dailyLimit: "15" }, after: { dailyLimit: "1000" } }),
    ),
    "a limit lowered from one that was not in force": appended(
      like(tightened, { before: { dailyLimit: "99" }, after: { dailyLimit: "1" } }),
    ),
    "a payee added without an order": appended(
      like(entryOf("allowlist.added"), { after: { ...entryOf("allowlist.added").body.after } }),
    ),
    "payees replaced without an order": appended(
      like(entryOf("allowlist.replaced"), {
        before: { allowlist: [] },
        after: { allowlist: [entryOf("allowlist.added").body.after] },
      }),
    ),
    "a signed list's payees": after(replaced, { payees: [], added: 0 }),
    "a signed list's count": after(replaced, { added: 4 }),
    "a signed list's order": after(replaced, { order: `0x${"1".repeat(64)}` }),
    "a signed list as an unsigned one": withBody(replaced, (body) => {
      const { order: _order, ...rest } = body.after ?? {};
      return { after: rest };
    }),
    "a long signed list's count": after(counted, { added: 59 }),
    "a long signed list's order": after(counted, { order: `0x${"1".repeat(64)}` }),
    "a payee added by an entry that counts it": appended(
      like(unsigned, { before: null, after: { added: 1 } }),
    ),
    "a payee changed for two others without an order": appended(
      like(unsigned, {
        before: null,
        after: { payees: [entryOf("allowlist.added").body.after], added: 1 },
      }),
    ),
    "a payee added after removals that were only counted": appended(
      like(unsigned, { before: null, after: { removed: 1 } }),
      entryOf("allowlist.added"),
    ),
    "a limit raised after removals that were only counted": appended(
      like(unsigned, { before: null, after: { removed: 1 } }),
      like(tightened, { before: { dailyLimit: "15" }, after: { dailyLimit: "1000" } }),
    ),
    "a payee removed who was not there": appended(entryOf("allowlist.removed")),
    "a budget's lowered limit that was higher": after(indexOf("budget.changed"), {
      dailyLimit: "30",
    }),
    "a budget's raised limit": after(indexOf("budget.changed", 1), { dailyLimit: "16" }),
    "a budget's agents who leave": after(indexOf("budget.changed", 1), { removed: [] }),
    "a budget's agent who leaves without an order": after(indexOf("budget.changed", 2), {
      removed: [entryOf("agent.created").body.agentId],
    }),
    "a budget's limit that was not in force": withBody(indexOf("budget.changed", 2), (body) => ({
      before: { ...body.before, weeklyLimit: "60" },
    })),
    "a budget raised without an order": appended(
      like(entryOf("budget.changed", 2), {
        before: entryOf("budget.created", 1).body.after,
        after: { ...entryOf("budget.created", 1).body.after, monthlyLimit: "8" },
      }),
    ),
    "a budget dropped by a limit without an order": appended(
      like(entryOf("budget.changed", 2), {
        before: entryOf("budget.created", 1).body.after,
        after: { ...entryOf("budget.created", 1).body.after, monthlyLimit: null, dailyLimit: "1" },
      }),
    ),
    "a budget changed that is not there": appended(entryOf("budget.changed", 2)),
    "a budget archived without an order": appended(
      like(entryOf("budget.archived"), { after: entryOf("budget.created", 1).body.after }),
    ),
    "another budget archived by an order": after(indexOf("budget.archived"), {
      budgetId: "bud_other",
    }),
    "a budget changed by the order of its end": withBody(indexOf("budget.archived"), () => ({
      action: "budget.changed",
    })),
    "an agent resumed by an order that was for its limits": appended(entryOf("agent.resumed")),
    "an agent resumed right after it was paused": {
      entries: [
        ...real.slice(0, indexOf("agent.paused") + 1),
        like(paused, {
          action: "agent.resumed",
          before: { status: "paused" },
          after: { status: "active" },
        }),
      ],
      at: indexOf("agent.paused") + 1,
    },
    "a key without an order": appended(entryOf("key.created")),
    "a key by the order of another agent": {
      entries: changed(indexOf("key.created"), (entry) =>
        like(entry, { agentId: entryOf("policy.signed", 1).body.agentId }),
      ),
      at: indexOf("key.created"),
    },
    "two keys by one order": {
      entries: real.toSpliced(indexOf("key.created") + 1, 0, entryOf("key.created")),
      at: indexOf("key.created") + 1,
    },
    "an approval without an order": appended(entryOf("approval.granted")),
    "an agent without an order": appended(like(entryOf("agent.created"), { agentId: "agt_other" })),
    "rules of an agent that is not there": appended(like(tightened, { agentId: "agt_other" })),
    "a change that carries a signature it does not need": withBody(
      indexOf("agent.updated", 1),
      () => ({ proof: entryOf("session.created", 1).body.proof }),
    ),
    "an entry of a contract that the owner is not": {
      entries: changed(byContract, (entry) => {
        const signers = [{ signer: entry.body.owner, chainId: 1, signature: "0x00" }];
        return like(entry, { ownerChainId: 1, proof: { ...entry.body.proof, signers } as never });
      }),
      at: byContract,
    },
  };
  t.equal(first, entryOf("agent.created").body.agentId);
  for (const [index, action] of actions.entries())
    if (SIGNED.includes(action))
      cases[`entry ${index + 1}, ${action}, without its signature`] = withBody(index, () => ({
        proof: null,
      }));

  const script = await documentedScript(t);
  t.match(await script(rows), { code: 0, output: new RegExp(`^ok .*: ${rows.length} entries`) });
  const run = Object.entries(cases).map(([what, { entries, at }]) => ({
    what,
    forged: chained(entries),
    seq: at + 1,
  }));
  for (const { what, forged, seq } of run) {
    const verdict = await verifyChain(forged);
    t.match(verdict, { ok: false, seq }, `${what}: ${JSON.stringify(verdict)}`);
  }
  // `npm run derive` generates the script from the same code, so a sample is enough outside of the full tier.
  const forScript = run.filter((_, index) => isFullTier || index % 8 === 0);
  for (let next = 0; next < forScript.length; next += 4) {
    const batch = forScript.slice(next, next + 4);
    const outputs = await Promise.all(batch.map(({ forged }) => script(forged)));
    for (const [index, { what, seq }] of batch.entries())
      t.match(
        outputs[index],
        { code: 1, output: new RegExp(`^FAILED .*: entry ${seq} `) },
        `${what}: the script`,
      );
  }
});

t.test("a forged note in the database with an old signature is found", async (t) => {
  const { ownerId } = entryOf("session.created").body;
  const seq = indexOf("policy.signed") + 1;
  const { body } = entryOf("payment.approved");
  await ctx.database.pool.query(
    `INSERT INTO audit_notes (owner_id, agent_id, actor, action, after, proof)
     SELECT owner_id, agent_id, $3, $4, $5, body::jsonb -> 'proof' FROM audit_log
      WHERE owner_id = $1 AND seq = $2`,
    [ownerId, seq, body.actor, body.action, body.after],
  );
  const output: string[] = [];
  const options = { owner: ownerId, noted: [] };
  t.equal(await verifyDatabase(app.prisma, options, (line) => output.push(line)), false);
  t.match(
    output.join("\n"),
    new RegExp(`^FAILED .*: entry ${rows.length + 1} is payment.approved`),
  );
});
