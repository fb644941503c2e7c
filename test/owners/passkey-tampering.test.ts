// Goal: an intruder with write access to the database gains nothing from the rows of passkeys: neither a key, nor a list of keys,
// nor a payout address of its own makes a wallet sign; and a passkey that its owner removed signs nothing new.
import { randomBytes } from "node:crypto";
import t from "tap";
import { hashTypedData, toHex, type Address, type Hex } from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import {
  orderDigest,
  rulesOfPolicy,
  typedDataOf,
  type OrderKind,
  type Orders,
} from "../../server/core/orders.ts";
import { PASSKEYS_CHAIN } from "../../server/core/passkeys.ts";
import { PAYOUT_WAIT_SECONDS } from "../../server/core/payout.ts";
import type { Authorization } from "../../server/core/authorization.ts";
import type { Cover } from "../../server/plugins/custody/covers.ts";
import { vaultHere } from "../../server/plugins/custody/wiring.ts";
import {
  createSessionToken,
  hashSessionToken,
  insertSession,
} from "../../server/plugins/auth/sessions.ts";
import { ensureOwner } from "../../server/plugins/owners/store.ts";
import { testApp } from "../helpers/app.ts";
import { spendAs } from "../helpers/call.ts";
import { asOwner, createAgent, sealedWallets, type SignedInOwner } from "../helpers/owner.ts";
import { testPasskey, type TestPasskey } from "../helpers/passkey.ts";

const service = await testApp(t);
const { app, chain, config } = service;
const sql = service.database.pool;
const FORM = "numbers";
const page = new URL(config.publicUrl);
page.hostname = "localhost";
const newPasskey = () => testPasskey(page.origin);
const newAddress = (): Address =>
  privateKeyToAccount(generatePrivateKey()).address.toLowerCase() as Address;

/** An owner without a wallet, signed in. */
async function passkeyOwner(passkey: TestPasskey): Promise<SignedInOwner & { id: string }> {
  const id = await ensureOwner(app.prisma, passkey.address, PASSKEYS_CHAIN);
  const { credentialId, key } = passkey;
  await app.prisma.passkey.create({
    data: { id: credentialId, ownerId: id, name: "First", status: "active", ...key },
  });
  const token = createSessionToken();
  const facts = { userAgent: "", ip: "" };
  await insertSession(app.prisma, { ownerId: id, tokenHash: hashSessionToken(token), ...facts });
  const cookie = `purser_session=${token}`;
  const headers = { cookie, origin: config.publicUrl, "content-type": "application/json" };
  return { id, account: { ...passkey } as never, cookie, headers };
}

const first = newPasskey();
const second = newPasskey();
const stolen = newPasskey();
const owner = await passkeyOwner(first);
const payee = newAddress();
const agent = await createAgent(service, owner, { dailyLimit: "10", allowlist: [payee] });
await chain.mint(agent.walletAddress, 10n ** 9n);

const nowSeconds = () => BigInt(Math.floor(Date.now() / 1000));
const single = (lifeSeconds = 600n) => ({
  nonce: toHex(randomBytes(32)),
  deadline: String(nowSeconds() + lifeSeconds),
});

/** Writes an order as if the service had accepted it. */
async function write<K extends OrderKind>(kind: K, order: Orders[K], by: TestPasskey) {
  const typedData = typedDataOf(kind, order, chain.chainId, FORM);
  const signature = await by.signTypedData(typedData as never);
  const digest = orderDigest(kind, order, chain.chainId, FORM);
  await sql.query(
    `INSERT INTO owner_orders (nonce, kind, owner_id, agent_id, chain_id, document, digest, deadline, signature, used_at)
     VALUES ($1, $2, $3, '', $4, $5, $6, $7, $8, clock_timestamp())`,
    [
      order.nonce,
      kind,
      owner.id,
      chain.chainId,
      JSON.stringify(order),
      digest,
      order.deadline,
      bytes(signature),
    ],
  );
  return order.nonce;
}
const bytes = (hex: Hex): Buffer => Buffer.from(hex.slice(2), "hex");
const drop = (nonce: string) => sql.query("DELETE FROM owner_orders WHERE nonce = $1", [nonce]);
const listed = (by: TestPasskey, version: number, ...passkeys: TestPasskey[]) =>
  write(
    "Passkeys",
    {
      owner: owner.account.address,
      version: String(version),
      passkeys: passkeys.map(({ key }) => ({ name: "x", ...key })),
      ...single(),
    },
    by,
  );
const payout = (by: TestPasskey, version: number, address: Address, deadline?: bigint) =>
  write(
    "PayoutAddress",
    {
      owner: owner.account.address,
      version: String(version),
      payout: address,
      ...single(),
      ...(deadline !== undefined && { deadline: String(deadline) }),
    },
    by,
  );

const authorization = (over: Partial<Authorization> = {}): Authorization => ({
  chainId: chain.chainId,
  asset: chain.usdc,
  from: agent.walletAddress,
  to: payee,
  value: 1_000_000n,
  validAfter: 0n,
  validBefore: nowSeconds() + 100n,
  nonce: toHex(randomBytes(32)),
  ...over,
});

/** As the custody process, which trusts nobody. */
const freshVault = () => vaultHere(app, { trustsCaller: false });
const BY_POLICY: Cover = { kind: "policy" };

/** A withdrawal that this passkey signed, whose row is in the database. */
async function withdrawal(by: TestPasskey, to: Address, vault = freshVault()): Promise<Hex> {
  const { nonce, deadline } = single();
  const order: Orders["Withdraw"] = {
    wallet: agent.walletAddress,
    to,
    asset: chain.usdc,
    amount: "1000000",
    nonce,
    deadline,
  };
  const typedData = typedDataOf("Withdraw", order, chain.chainId, FORM);
  const signature = await by.signTypedData(typedData as never);
  await sql.query(
    `INSERT INTO withdrawal_orders (agent_id, nonce, payment_id, to_address, amount, deadline, signature)
     VALUES ($1, $2, 'pay_x', $3, 1000000, $4, $5)`,
    [agent.id, nonce, to, deadline, bytes(signature)],
  );
  const wanted = authorization({ to, nonce });
  return vault.signAuthorization(agent.id, wanted, { kind: "withdrawal", orderNonce: nonce });
}
const REFUSED = { message: /its owner did not sign/ };

t.test("without tampering, a passkey's policy is paid by", async (t) => {
  const answer = await spendAs(app, agent, { recipient: payee, amount: "1" });
  t.equal(answer.statusCode, 200, answer.body);
  t.ok(await freshVault().signAuthorization(agent.id, authorization(), BY_POLICY));
});

t.test("a row of a key, and another name of the owner", async (t) => {
  await sql.query(`UPDATE passkeys SET x = $1, y = $2 WHERE owner_id = $3`, [
    stolen.key.x,
    stolen.key.y,
    owner.id,
  ]);
  await payout(first, 1, payee);
  await t.rejects(withdrawal(stolen, payee), REFUSED, "the row of a key says nothing");
  t.ok(await withdrawal(first, payee), "and takes nothing away");
  await sql.query(`UPDATE passkeys SET x = $1, y = $2 WHERE owner_id = $3`, [
    first.key.x,
    first.key.y,
    owner.id,
  ]);
  for (const [column, value] of [
    ["address", stolen.address],
    ["chain_id", "0"],
  ] as const) {
    const { rows } = await sql.query<{ was: string }>(
      `SELECT ${column}::text AS was FROM owners WHERE id = $1`,
      [owner.id],
    );
    await sql.query(`UPDATE owners SET ${column} = $1 WHERE id = $2`, [value, owner.id]);
    await t.rejects(freshVault().signAuthorization(agent.id, authorization(), BY_POLICY), REFUSED);
    await sql.query(`UPDATE owners SET ${column} = $1 WHERE id = $2`, [rows[0]?.was, owner.id]);
  }
  await sql.query("DELETE FROM owner_orders WHERE kind = 'PayoutAddress'");
});

t.test("a payout address", async (t) => {
  const home = newAddress();
  const elsewhere = newAddress();
  await t.rejects(withdrawal(first, home), REFUSED, "none was named");
  await payout(first, 1, home);
  t.ok(await withdrawal(first, home));
  await t.rejects(withdrawal(first, elsewhere), REFUSED, "a passkey withdraws nowhere else");
  await t.rejects(withdrawal(stolen, home), REFUSED, "and only the owner's");
  const forged = await payout(
    stolen,
    1,
    elsewhere,
    nowSeconds() - 10n * BigInt(PAYOUT_WAIT_SECONDS),
  );
  await t.rejects(withdrawal(first, elsewhere), REFUSED, "a thief's payout address");
  t.ok(await withdrawal(first, home), "which takes nothing away either");
  await drop(forged);
  const changed = await payout(first, 2, elsewhere);
  await t.rejects(withdrawal(first, elsewhere), REFUSED, "the owner's own waits a day");
  await sql.query(
    "UPDATE owner_orders SET used_at = used_at - interval '30 days', deadline = 1 WHERE nonce = $1",
    [changed],
  );
  await t.rejects(withdrawal(first, elsewhere), REFUSED, "whatever the columns say");
  await drop(changed);
});

t.test("a list of keys", async (t) => {
  const home = newAddress();
  await sql.query("DELETE FROM owner_orders WHERE kind = 'PayoutAddress'");
  await payout(first, 1, home);
  const forged = await listed(stolen, 1, stolen);
  await t.rejects(withdrawal(stolen, home), REFUSED, "signed by the key that it lists");
  await drop(forged);

  const running = freshVault();
  await listed(first, 1, first, second);
  t.ok(await withdrawal(second, home, running), "the second key signs");
  const removal = await listed(second, 2, second);
  await t.rejects(withdrawal(first, home, running), REFUSED, "the first was removed");
  const pays = () => running.signAuthorization(agent.id, authorization(), BY_POLICY);
  t.ok(await pays(), "the policy that it signed stays in force");
  t.ok(await freshVault().signAuthorization(agent.id, authorization(), BY_POLICY));
  const policy = await policyBy(first);
  await t.rejects(running.reseal(...policy), REFUSED, "it signs no new policy");
  const byStolen = await policyBy(stolen);
  await t.rejects(running.reseal(...byStolen), REFUSED, "nor does a stranger's");
  t.ok(await running.reseal(...(await policyBy(second))), "the listed one does");

  await drop(removal);
  await t.rejects(withdrawal(first, home, running), REFUSED, "the list before was restored");
});

/** The arguments of a seal for a wider policy, signed by this passkey. */
async function policyBy(by: TestPasskey) {
  const { rows } = await sql.query<{ document: Orders["AgentPolicy"] }>(
    "SELECT document FROM owner_orders WHERE agent_id = $1 AND kind = 'AgentPolicy'",
    [agent.id],
  );
  const document = rows[0]?.document as Orders["AgentPolicy"];
  const order = { ...document, version: "2", dailyLimit: "20000000", ...single() };
  const signature = await by.signTypedData(
    typedDataOf("AgentPolicy", order, chain.chainId, FORM) as never,
  );
  const digest = orderDigest("AgentPolicy", order, chain.chainId, FORM);
  const rules = { ...rulesOfPolicy(order), status: "active" as const };
  const [wallet] = await sealedWallets(service.database);
  if (!wallet) throw new Error("no wallet");
  return [
    wallet as never,
    {
      current: { ...rulesOfPolicy(document), status: "active" as const },
      wanted: rules,
      signed: { chainId: chain.chainId, order, digest, signature },
    },
  ] as const;
}

t.test("a passkey whose device counts back changes nothing", async (t) => {
  const counting = newPasskey();
  const other = await passkeyOwner(counting);
  const url = `/api/agents/${(await createAgent(service, other, {})).id}`;
  const raise = (dailyLimit: string, count: number) =>
    asOwner(
      app,
      {
        headers: other.headers,
        account: {
          signTypedData: async (typedData: never) => {
            return counting.signHash(hashTypedData(typedData), { count });
          },
        } as never,
      },
      { method: "PATCH", url, body: { dailyLimit } },
    );
  t.equal((await raise("11", 5)).statusCode, 200);
  const back = await raise("12", 4);
  t.match(
    { status: back.statusCode, ...back.json<object>() },
    { status: 401, code: "invalid_signature", detail: /copy/ },
  );
  t.equal((await raise("12", 0)).statusCode, 401, "also a device that no longer counts");
  t.equal((await raise("12", 6)).statusCode, 200);
});
