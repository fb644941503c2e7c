// Goal: nobody who can edit rows, or call custody, gets more signed for a channel than the owner's policy covers: nothing is signed and an
// alarm is raised, in this process and with the keys in another.
import { fork } from "node:child_process";
import { randomBytes, randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import t, { type Test } from "tap";
import { getAddress, recoverTypedDataAddress, type Address, type Hex } from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import {
  channelIdAt,
  configOf,
  type ChannelOrder,
} from "../../server/schemes/batch-settlement/paying.ts";
import { testEnvironment } from "../helpers/app.ts";
import { channelsDomain, randomSalt, signVoucher } from "../helpers/batch-settlement.ts";
import { testChain, type TestChain } from "../helpers/chain.ts";
import { childScript } from "../helpers/child-script.ts";
import { asOwner } from "../helpers/owner.ts";
import { testDatabase, type TestDatabase } from "../helpers/postgres.ts";
import { channelIn } from "../x402-client/channel-facts.ts";
import { channelSeller } from "../x402-client/channel-sellers.ts";
import { market, PAYEE, type Market } from "../x402-client/market.ts";
import { ourFacilitator } from "../x402-client/stock-sellers.ts";

const LONGEST = 3_600;
const RULES = {
  dailyLimit: "2",
  perPaymentLimit: "0.01",
  channelHeld: "1",
  channelDelay: LONGEST,
  allowlist: [{ address: PAYEE, channelHeld: "0.5" }],
};

async function separateCustody(t: Test, { url }: TestDatabase, chain: TestChain) {
  const folder = mkdtempSync(join(tmpdir(), "purser-custody-"));
  const path = join(folder, "keys", "custody.sock");
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const child = fork(childScript("test/keys/custody.child.ts"), {
    env: {
      PATH: process.env["PATH"] ?? "",
      ...testEnvironment({ databaseUrl: url, chain, port: 3000 }),
      RELAYER_PRIVATE_KEYS: "",
      FACILITATOR_OPEN: "",
      MASTER_KEYS: `own:${randomBytes(32).toString("base64")}`,
      CUSTODY_SOCKET: path,
      LOG_LEVEL: "silent",
    },
    stdio: ["ignore", "ignore", "inherit", "ipc"],
  });
  const ended = once(child, "exit");
  t.teardown(async () => {
    child.kill("SIGKILL");
    await ended;
  });
  const [message] = (await Promise.race([once(child, "message"), ended])) as [unknown];
  if (message !== "ready") throw new Error(`custody ended before it was ready: ${String(message)}`);
  return { MASTER_KEYS: "", CUSTODY_SOCKET: path };
}

for (const isSeparate of [false, true])
  t.test(isSeparate ? "keys in another process" : "keys in this process", async (t) => {
    const chain = await testChain(t);
    const database = await testDatabase(t);
    const env = isSeparate ? await separateCustody(t, database, chain) : {};
    const made = await market(t, { chain, database, listen: true, env, agent: RULES });
    await t.test("calls", (t) => calls(t, made));
    await t.test("edited rows", (t) => editedRows(t, made));
  });

const alarms = async ({ app }: Market): Promise<number> => {
  const metric = await app.metrics.getSingleMetric("purser_policy_not_signed_total")?.get();
  return metric?.values[0]?.value ?? 0;
};

/** A caller of custody that lies about what it wants to have signed. */
async function calls(t: Test, { app, agent, chain }: Market): Promise<void> {
  const other = privateKeyToAccount(generatePrivateKey());
  const [signer] = await app.custody.channelSigners();
  if (!signer) throw new Error("no key signs vouchers");
  const config = (over: object = {}): ChannelOrder["config"] => ({
    ...configOf(agent.walletAddress, {
      receiver: PAYEE.toLowerCase() as Address,
      signer,
      token: chain.usdc.toLowerCase() as Address,
      receiverAuthorizer: other.address.toLowerCase() as Address,
      withdrawDelay: 900,
      salt: randomSalt(),
    }),
    ...over,
  });
  const order = (over: Partial<ChannelOrder> = {}, ofConfig: object = {}): ChannelOrder => ({
    chainId: chain.chainId,
    config: config(ofConfig),
    ceiling: 10_000n,
    ...over,
  });
  const deposit = (amount: bigint) => ({ amount, validBefore: 2n ** 40n, salt: randomSalt() });
  const sign = (wanted: ChannelOrder) => app.custody.signVoucher(agent.id, wanted, "");

  const first = order({ deposit: deposit(500_000n) });
  const signed = await sign(first);
  t.equal(
    await recoverTypedDataAddress({
      domain: channelsDomain(chain),
      types: {
        Voucher: [
          { name: "channelId", type: "bytes32" },
          { name: "maxClaimableAmount", type: "uint128" },
        ],
      },
      primaryType: "Voucher",
      message: { channelId: channelIdAt(chain.chainId, first.config), maxClaimableAmount: 10_000n },
      signature: signed.voucher,
    }),
    getAddress(signer),
  );
  const before = { ceiling: 10_000n, voucher: signed.voucher };
  t.ok(await sign({ ...first, ceiling: 20_000n, before, deposit: undefined }), "one payment more");
  t.ok(await sign({ ...first, ceiling: 5_000n, before, deposit: undefined }), "a lower ceiling");

  const custody = { name: "CustodyError" };
  const forgedRow = { code: "policy_not_signed" };
  const uncovered = { code: "service_unavailable" };
  const foreign = await signVoucher(
    chain,
    other,
    channelIdAt(chain.chainId, first.config),
    1_000_000n,
  );
  const own = first.config;
  const cases: [string, ChannelOrder, { name: string } | { code: string }][] = [
    ["another payer", order({}, { payer: other.address.toLowerCase() }), custody],
    ["another authorizer", order({}, { payerAuthorizer: other.address.toLowerCase() }), custody],
    ["no authorizer", order({}, { payerAuthorizer: `0x${"0".repeat(40)}` }), custody],
    ["another token", order({}, { token: other.address.toLowerCase() }), custody],
    ["another chain", order({ chainId: 1 }), custody],
    ["another receiver", order({}, { receiver: other.address.toLowerCase() }), uncovered],
    ["above one payment", order({ ceiling: 10_001n }), uncovered],
    ["above one more payment", { ...first, ceiling: 20_001n, before }, uncovered],
    ["a deposit above the payee's", order({ deposit: deposit(500_001n) }), uncovered],
    ["a deposit above the agent's", order({ deposit: deposit(1_000_001n) }), uncovered],
    ["a longer delay", order({}, { withdrawDelay: LONGEST + 1 }), uncovered],
    [
      "a voucher before of another key",
      order({ ceiling: 1_000_000n, before: { ceiling: 1_000_000n, voucher: foreign } }, own),
      forgedRow,
    ],
    [
      "a voucher before of another ceiling",
      { ...first, ceiling: 1_000_000n, before: { ...before, ceiling: 1_000_000n } },
      forgedRow,
    ],
    ["a voucher before of another channel", order({ ceiling: 20_000n, before }), forgedRow],
    ["a voucher before of another chain", { ...first, chainId: 1, before }, custody],
  ];
  for (const [name, wanted, refusal] of cases) await t.rejects(sign(wanted), refusal, name);
}

/** A holder of the database: what is edited gets nothing signed beyond what was signed before and one payment. */
async function editedRows(t: Test, made: Market): Promise<void> {
  const { app, agent, owner, chain, database } = made;
  const seller = await channelSeller(t, {
    chain,
    payTo: PAYEE,
    facilitator: ourFacilitator(made.baseUrl),
  });
  made.config.fetchPrivateOrigins.push(seller.origin);
  const thief = privateKeyToAccount(generatePrivateKey());
  const sql = (text: string) => database.pool.query(text);
  const buy = () =>
    made.fetch({ url: `${seller.origin}/word` }, { "idempotency-key": randomUUID() });
  const first = await buy();
  t.match(first, { status: 200 }, first.text);
  const { id } = channelIn(first.body);
  const A = `agent_id = '${agent.id}'`;
  const forged = await signVoucher(chain, thief, id as Hex, 50_000n);

  /** Edits, tries, and undoes: no voucher reaches the seller. */
  const signsNothing = async (
    name: string,
    table: "channels" | "agents" | "allowlist_entries",
    edit: string,
  ) =>
    t.test(name, async (t) => {
      await sql(`CREATE TABLE kept AS TABLE ${table}`);
      const vouchers = seller.paidRequests;
      const alarmed = await alarms(made);
      try {
        await sql(edit);
        const answer = await app.inject({
          method: "POST",
          url: "/api/agents/x402-fetch",
          headers: { ...agent.headers, "idempotency-key": randomUUID() },
          payload: JSON.stringify({ url: `${seller.origin}/word` }),
        });
        t.not(answer.statusCode, 200, answer.body);
        t.equal(seller.paidRequests, vouchers, "nothing was signed");
        t.equal(await alarms(made), alarmed + 1, `an alarm: ${answer.body}`);
      } finally {
        const { rows } = await sql(
          `SELECT string_agg(quote_ident(column_name), ', ') AS names FROM information_schema.columns
            WHERE table_name = '${table}' AND table_schema = current_schema()
              AND column_name NOT IN ('agent_id', 'id') AND is_generated = 'NEVER'`,
        );
        const { names } = rows[0] as { names: string };
        const key = table === "agents" ? "k.id = x.id" : "k.agent_id = x.agent_id";
        const row = table === "channels" ? " AND k.id = x.id" : "";
        const kept = names
          .split(", ")
          .map((name) => `k.${name}`)
          .join(", ");
        await sql(`UPDATE ${table} x SET (${names}) = ROW(${kept}) FROM kept k WHERE ${key}${row}`);
        await sql("DROP TABLE kept");
      }
    });

  await signsNothing(
    "a higher ceiling, without its voucher",
    "channels",
    `UPDATE channels SET ceiling = 50000, charged = 50000 WHERE ${A}`,
  );
  await signsNothing(
    "a higher ceiling, with a voucher of the thief",
    "channels",
    `UPDATE channels SET ceiling = 50000, charged = 50000, voucher = decode('${forged.slice(2)}', 'hex') WHERE ${A}`,
  );
  await signsNothing(
    "another voucher",
    "channels",
    `UPDATE channels SET voucher = decode('${forged.slice(2)}', 'hex') WHERE ${A}`,
  );
  await signsNothing(
    "more may be held",
    "agents",
    `UPDATE agents SET channel_held = 100000000 WHERE id = '${agent.id}'`,
  );
  await signsNothing(
    "a longer delay",
    "agents",
    `UPDATE agents SET channel_delay = 2592000 WHERE id = '${agent.id}'`,
  );
  await signsNothing(
    "more may be held for the payee",
    "allowlist_entries",
    `UPDATE allowlist_entries SET channel_held = 100000000 WHERE ${A}`,
  );
  await signsNothing(
    "no limit for the payee",
    "allowlist_entries",
    `UPDATE allowlist_entries SET channel_held = NULL WHERE ${A}`,
  );

  await t.test("another receiver in the row of the channel", async (t) => {
    // The decision finds no channel of the seller any more, so it opens another one; the row with the thief is never used.
    await sql(`UPDATE channels SET receiver = '${thief.address.toLowerCase()}' WHERE ${A}`);
    const answer = await buy();
    t.match(answer, { status: 200 }, answer.text);
    t.not(channelIn(answer.body).id, id);
    await sql(
      `UPDATE channels SET status = 'closed', reason = 'test' WHERE ${A} AND id <> '${id}'`,
    );
    await sql(
      `UPDATE channels SET receiver = '${PAYEE.toLowerCase()}' WHERE ${A} AND id = '${id}'`,
    );
  });

  await t.test(
    "a ceiling put back to an older voucher counts more, and signs no more",
    async (t) => {
      t.match(await buy(), { status: 200 });
      const { rows } = await sql(
        `SELECT ceiling, charged, encode(voucher, 'hex') AS voucher FROM channels WHERE ${A} AND id = '${id}'`,
      );
      const was = rows[0] as { ceiling: string; charged: string; voucher: string };
      t.match(was, { ceiling: "2000", charged: "2000" });
      await sql(
        `UPDATE channels SET ceiling = 0, charged = 0, voucher = NULL WHERE ${A} AND id = '${id}'`,
      );
      const answer = await buy();
      t.match(answer, { status: 200 }, "the seller shows our voucher, and we follow");
      t.match(channelIn(answer.body), { charged: "0.003" });
    },
  );

  const url = `/api/agents/${agent.id}`;
  const lowered = await asOwner(app, owner, {
    method: "PATCH",
    url,
    body: { perPaymentLimit: "0.000999" },
  });
  t.equal(lowered.statusCode, 200);
  t.match(await buy(), { status: 403 }, "the rules still work after all that");
}
