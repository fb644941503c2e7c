// Goal: an owner that moves to another cell is never accepted by two cells, whenever the command dies; no limit is
// forgotten, no money is paid twice, and no key is in two places.
// Tier: full (starts two cells and kills the command).
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { randomBytes } from "node:crypto";
import type { FastifyInstance } from "fastify";
import t, { type Test } from "tap";
import { erc20Abi } from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import type { Cell } from "../../server/core/cells.ts";
import { moveOwner } from "../../server/move-owner/cli.ts";
import { createMerchantKey } from "../../server/plugins/auth/merchant-keys.ts";
import { testApp, testEnvironment, type TestApp } from "../helpers/app.ts";
import { testChain, withOwnAccounts, type TestChain } from "../helpers/chain.ts";
import { childScript } from "../helpers/child-script.ts";
import { gateAt } from "../helpers/gate.ts";
import { asOwner, createAgent, freshNonce, signIn, siweMessage, verify } from "../helpers/owner.ts";
import {
  signInWithPasskey,
  signUpWithPasskey,
  testPasskey,
  tryOffer,
  tryPasskeySignIn,
  type Said,
} from "../helpers/passkey.ts";
import { post, signedPayment } from "../facilitator/payments.ts";
import { assertAuditsHold } from "../owners/audit.helper.ts";
import { until } from "../helpers/until.ts";

const SECRET = "two-cells-of-one-service-and-a-test";
const newKey = (kid: string): string => `${kid}:${randomBytes(32).toString("base64")}`;
const PAYEE = privateKeyToAccount(generatePrivateKey()).address;

interface World extends TestApp {
  masterKeys: string;
}

async function startCell(t: Test, id: string, cells: Cell[], chain: TestChain): Promise<World> {
  const masterKeys = newKey(id);
  const world = await testApp(t, {
    chain,
    listen: true,
    env: { MASTER_KEYS: masterKeys },
    timings: { reconcileRoundMs: 200 },
    configure: (config) => {
      const url = `http://127.0.0.1:${config.port}`;
      cells.push({ id, url, fromSeconds: 0n, untilSeconds: 2n ** 256n });
      config.cells = { self: id, cells, secret: SECRET };
    },
  });
  return { ...world, masterKeys };
}

const chain = await testChain(t);
const cells: Cell[] = [];
const one = await startCell(t, "c1", cells, chain);
const two = await startCell(t, "c2", cells, await withOwnAccounts(chain));

const environment = (extra: Record<string, string> = {}): Record<string, string> => ({
  ...testEnvironment({ databaseUrl: one.database.url, chain, port: one.config.port }),
  MASTER_KEYS: one.masterKeys,
  CELL: "c1",
  CELLS: cells.map(({ id, url }) => `${id}=${url}`).join(","),
  CELL_SECRET: SECRET,
  TO_CELL: "c2",
  TO_PUBLIC_URL: two.baseUrl,
  TO_DATABASE_URL: two.database.url,
  TO_MASTER_KEYS: two.masterKeys,
  ...extra,
});

/** The command in this process. */
async function command(args: string[], extra: Record<string, string> = {}) {
  const lines: string[] = [];
  try {
    await moveOwner(args, environment(extra), (line) => void lines.push(line));
    return { done: true, output: lines.join("\n") };
  } catch (error) {
    return { done: false, output: [...lines, (error as Error).message].join("\n") };
  }
}

/** The command in its own process, which is killed where the gate holds it. */
async function killedAt(
  t: Test,
  args: string[],
  { database, when }: { database: TestApp["database"]; when: string },
): Promise<void> {
  const gate = await gateAt(t, database.pool, { on: "BEFORE UPDATE ON owner_moves", when });
  const child: ChildProcess = spawn(
    process.execPath,
    ["--enable-source-maps", childScript("test/operations/move-owner.child.ts"), ...args],
    {
      env: { PATH: process.env["PATH"], ...environment() },
      stdio: ["ignore", "ignore", "inherit"],
    },
  );
  await gate.reached();
  child.kill("SIGKILL");
  await once(child, "exit");
  await gate.open();
}

type Agent = Awaited<ReturnType<typeof createAgent>>;

const spend = (app: FastifyInstance, agent: Agent, amount: string, key: string) =>
  app.inject({
    method: "POST",
    url: "/api/agents/spend",
    headers: { ...agent.headers, "idempotency-key": key },
    payload: { recipient: PAYEE, amount },
  });
const me = (app: FastifyInstance, agent: Agent) =>
  app.inject({ url: "/api/agents/me", headers: agent.headers });
const paid = (): Promise<bigint> => chain.usdcOf(PAYEE);
const rowsOf = async ({ database }: World, table: string): Promise<number> =>
  Number((await database.pool.query(`SELECT count(*) AS n FROM ${table}`)).rows[0].n);

async function trySignIn(world: TestApp, account: ReturnType<typeof privateKeyToAccount>) {
  const nonce = await freshNonce(world.app);
  const message = siweMessage(world, { nonce, address: account.address });
  return verify(world, { message, signature: await account.signMessage({ message }) });
}

/** An owner of the first cell, wherever its address belongs. */
async function ownerOfFirst() {
  const account = privateKeyToAccount(generatePrivateKey());
  await one.database.pool.query("INSERT INTO owners (id, address) VALUES ($1, $2)", [
    `own_${randomBytes(8).toString("hex")}`,
    account.address.toLowerCase(),
  ]);
  return signIn(one, account);
}

t.test("an owner with its agents moves, and the command is killed twice", async (t) => {
  const owner = await ownerOfFirst();
  const { address } = owner.account;
  const agent = await createAgent(one, owner, { dailyLimit: "10", allowlist: [PAYEE] });
  await chain.mint(agent.walletAddress, 20_000_000n);
  const hook = (
    await asOwner(one.app, owner, {
      method: "POST",
      url: "/api/webhooks",
      body: { url: "https://example.com/hook", types: ["*"] },
    })
  ).json<{ webhook: { id: string }; secret: string }>();
  const ownerId = (await one.database.pool.query("SELECT owner_id FROM agents")).rows[0].owner_id;
  const { key: merchantKey, facts } = createMerchantKey("c1");
  await one.app.prisma.merchantKey.create({
    data: { id: "mky_moved", ownerId, ...facts, keyHash: Uint8Array.from(facts.keyHash) },
  });
  const first = await spend(one.app, agent, "3", "first");
  t.equal(first.statusCode, 200, first.body);

  const dry = await command([address, "--dry-run"]);
  t.match(dry.output, /payments: 1\n/);
  t.match(dry.output, "Nothing was changed");
  t.equal((await me(one.app, agent)).statusCode, 200);

  t.comment("killed after the mark, before anything is copied");
  await killedAt(t, [address], { database: two.database, when: "TRUE" });
  const refused = await spend(one.app, agent, "1", "during");
  t.equal(refused.statusCode, 421);
  t.match(refused.json(), { code: "other_cell", cell: "c2", url: two.baseUrl });
  t.equal((await spend(two.app, agent, "1", "during")).statusCode, 421, "nor the new cell");
  for (const world of [one, two])
    t.match((await trySignIn(world, owner.account)).json(), { code: "other_cell" });
  const read = await one.app.inject({ url: "/api/agents", headers: owner.headers });
  t.match(read.json(), { code: "other_cell", url: two.baseUrl }, "an open session as well");
  const body = await signedPayment({ chain, payer: chain.admin, payTo: PAYEE });
  const settle = await one.app.inject({
    method: "POST",
    url: "/api/x402/settle",
    headers: { authorization: `Bearer ${merchantKey}` },
    payload: body,
  });
  t.match(settle.json(), { code: "other_cell" }, "and a merchant's key");
  t.equal(await rowsOf(two, "agents"), 0);

  t.match(await command([address, "--cancel"]), { done: true, output: /was given up/ });
  t.equal((await spend(one.app, agent, "1", "canceled")).statusCode, 200);

  t.comment("killed after the new cell's commit, before the old cell's note");
  const before = await paid();
  await killedAt(t, [address], { database: one.database, when: "TRUE" });
  t.equal((await spend(one.app, agent, "1", "copied")).statusCode, 421, "not the old cell");
  t.match(await command([address, "--cancel"]), { done: false, output: /has the copy already/ });
  const replayed = await spend(two.app, agent, "3", "first");
  t.match(replayed.json(), { txHash: first.json().txHash }, "the same call is not paid again");
  t.equal(await paid(), before);
  const over = await spend(two.app, agent, "6.5", "over");
  t.match(over.json(), { code: "daily_limit_exceeded", policy: { spent: "4", remaining: "6" } });

  const done = await command([address]);
  t.match(done.output, /Done: /);
  t.match(done.output, `${agent.apiKey.slice(0, "purser_c1_".length + 4)} c2`);
  t.match(done.output, /purser_mk_c1_\w{4} c2/);
  t.match(await command([address]), { done: true, output: /is in the cell c2/ }, "again");
  t.match((await me(one.app, agent)).json(), { code: "other_cell", cell: "c2" });
  for (const table of ["agent_wallets", "webhooks", "sessions"])
    t.equal(await rowsOf(one, table), 0, `${table} of the old cell`);

  t.equal((await spend(two.app, agent, "6", "rest")).statusCode, 200, "within the same day");
  t.equal(await paid(), before + 6_000_000n);
  t.match((await trySignIn(one, owner.account)).json(), { code: "other_cell", cell: "c2" });
  const again = await signIn(two, owner.account);
  const list = await two.app.inject({ url: `/api/agents/${agent.id}`, headers: again.headers });
  t.equal(list.statusCode, 200, list.body);
  const secret = await two.app.prisma.webhook.findUniqueOrThrow({ where: { id: hook.webhook.id } });
  const opened = await two.app.secretBox.open(`webhook:${secret.id}`, secret.secret);
  t.equal(Buffer.from(opened).toString(), hook.secret, "its webhooks keep their secret");

  t.comment("a signed order and a withdrawal work in the new cell");
  const changed = await asOwner(two.app, again, {
    method: "PATCH",
    url: `/api/agents/${agent.id}`,
    body: { dailyLimit: "50" },
  });
  t.equal(changed.statusCode, 200, changed.body);
  t.equal((await spend(two.app, agent, "2", "raised")).statusCode, 200);

  t.comment(`the ledger goes on in the new cell only ${performance.now()}`);
  const incoming = ({ database }: World): Promise<number> =>
    database.pool
      .query("SELECT count(*) AS n FROM payments WHERE kind = 'incoming' AND amount = 777")
      .then(({ rows }) => Number(rows[0].n));
  await chain.mint(chain.admin.address, 777n);
  const hash = await chain.walletClient(chain.admin).writeContract({
    address: chain.usdc,
    abi: erc20Abi,
    functionName: "transfer",
    args: [agent.walletAddress, 777n],
  });
  const { blockNumber } = await chain.publicClient.waitForTransactionReceipt({ hash });
  await until(async () => (await incoming(two)) === 1, 30_000);
  const isPast = async (): Promise<boolean> =>
    (
      await one.database.pool.query("SELECT 1 FROM ledger_cursors WHERE next_block > $1", [
        String(blockNumber),
      ])
    ).rowCount === 1;
  await until(isPast, 30_000);
  t.equal(await incoming(one), 0);
  for (const world of [one, two]) t.equal(await rowsOf(world, "ledger_differences"), 0);

  for (const { app } of [one, two]) await assertAuditsHold(t, app.prisma);
});

t.test(
  "what was decided just before the move goes along, what comes later is refused",
  async (t) => {
    const owner = await ownerOfFirst();
    const agent = await createAgent(one, owner, { dailyLimit: "10", allowlist: [PAYEE] });
    await chain.mint(agent.walletAddress, 20_000_000n);
    t.equal((await spend(one.app, agent, "1", "first")).statusCode, 200);
    const { rows } = await one.database.pool.query("SELECT owner_id FROM agents WHERE id = $1", [
      agent.id,
    ]);
    const ownerId: string = rows[0].owner_id;
    const spare = (
      await asOwner(one.app, owner, {
        method: "POST",
        url: `/api/agents/${agent.id}/keys`,
        body: { label: "spare" },
      })
    ).json<{ apiKey: string; key: { id: string } }>();

    // A payment that waits for its agent's lock, and an owner's change that is not committed.
    const [payment, change] = await Promise.all([
      one.database.pool.connect(),
      one.database.pool.connect(),
    ]);
    await payment.query("BEGIN");
    await payment.query("SELECT 1 FROM agents WHERE id = $1 FOR UPDATE", [agent.id]);
    const before = await paid();
    const late = spend(one.app, agent, "1", "late").then((answer) => answer);
    const waitsFor = (text: string) => async (): Promise<boolean> =>
      (
        await one.database.pool.query(
          "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE $1",
          [text],
        )
      ).rowCount !== 0;
    await until(waitsFor("%purser_reserve(%"));
    await change.query("BEGIN");
    await change.query("UPDATE api_keys SET revoked_at = now() WHERE id = $1", [spare.key.id]);
    const note = `INSERT INTO audit_notes (owner_id, id, actor, action) VALUES ('${ownerId}', 'aud_' || gen_random_uuid(), $1, 'merchant_key.revoked')`;
    await change.query(note, [owner.account.address.toLowerCase()]);

    const moving = command([ownerId]);
    await until(waitsFor("SELECT 1 FROM owners%"));
    await change.query("COMMIT");
    change.release();
    await until(waitsFor("SELECT 1 FROM agents%"));
    await t.rejects(
      one.database.pool.query(note, [owner.account.address.toLowerCase()]),
      { code: "PU007" },
      "another change is refused now",
    );
    for (const [what, text] of Object.entries({
      task: "INSERT INTO tasks (agent_id, id, ceiling) VALUES ($1, 'late', 1)",
      order: "UPDATE owner_orders SET used_at = now() WHERE agent_id = $1",
      filter:
        "INSERT INTO saved_filters (owner_id, id, name, filter) SELECT owner_id, 'f', 'late', '{}' FROM agents WHERE id = $1",
    }))
      await t.rejects(one.database.pool.query(text, [agent.id]), { code: "PU007" }, what);
    await payment.query("COMMIT");
    payment.release();
    t.match((await late).json(), { code: "other_cell", cell: "c2" }, "and the late payment");
    t.equal(await paid(), before);
    t.match(await moving, { done: true });

    const revoked = await two.app.inject({
      url: "/api/agents/me",
      headers: { authorization: `Bearer ${spare.apiKey}` },
    });
    t.match(revoked.json(), { code: "api_key_revoked" });
    t.match((await spend(two.app, agent, "9.5", "over")).json(), { code: "daily_limit_exceeded" });
    t.equal((await spend(two.app, agent, "9", "rest")).statusCode, 200);
  },
);

t.test("a payment that is still open is waited for, and then counts in the new cell", async (t) => {
  const owner = await ownerOfFirst();
  const agent = await createAgent(one, owner, { dailyLimit: "10", allowlist: [PAYEE] });
  await chain.mint(agent.walletAddress, 20_000_000n);
  const { pool } = one.database;
  await pool.query(
    "INSERT INTO payments (agent_id, id, kind, status, chain_id, asset, counterparty, amount) VALUES ($1, 'pay_open', 'spend', 'reserved', $2, $3, $4, 4000000)",
    [agent.id, chain.chainId, chain.usdc.toLowerCase(), PAYEE.toLowerCase()],
  );
  const waited = await command([owner.account.address, "--wait", "0"]);
  t.match(waited, { done: false, output: /1 payments and withdrawals whose outcome is not known/ });
  t.equal((await me(two.app, agent)).statusCode, 421);
  t.equal((await me(one.app, agent)).statusCode, 421);
  // Another database with the new cell's name would be a second copy.
  const other = await command([owner.account.address], {
    TO_CELL: "c3",
    CELLS: `${environment()["CELLS"]},c3=http://127.0.0.1:9`,
  });
  t.match(other, { done: false, output: /TO_CELL must be c2/ });
  await pool.query(
    "UPDATE payments SET status = 'voided', failure_code = 'x', failure_detail = 'x' WHERE id = 'pay_open'",
  );
  // The seller posted a payment of this agent to the new cell, which settled it for its payer.
  const body = await signedPayment({ chain, payer: chain.admin, payTo: PAYEE });
  await chain.mint(chain.admin.address, 1_000n);
  t.match(await post(two.app, "settle", body), { success: true });
  const wallet = agent.walletAddress.toLowerCase();
  await two.database.pool.query(
    "UPDATE settlements SET from_address = $1 WHERE from_address = $2 AND kind = 'facilitated'",
    [wallet, chain.admin.address.toLowerCase()],
  );
  const { rows } = await two.database.pool.query(
    "SELECT to_jsonb(s) - 'kind' - 'class' - 'agent_id' AS row FROM settlements s WHERE from_address = $1",
    [wallet],
  );
  // As the agent's own payment, whose class follows from its kind.
  await pool.query(
    `INSERT INTO settlements SELECT (jsonb_populate_record(s, $1::jsonb || jsonb_build_object('agent_id', $2::text))).*
       FROM settlements s WHERE kind = 'spend' LIMIT 1`,
    [JSON.stringify(rows[0].row), agent.id],
  );
  t.match(await command([owner.account.address]), { done: true, output: /Done/ });
  const kinds = await two.database.pool.query(
    "SELECT kind FROM settlements WHERE from_address = $1",
    [wallet],
  );
  t.same(kinds.rows, [{ kind: "facilitated" }], "the new cell's own row stays");
  t.equal((await spend(two.app, agent, "10", "all")).statusCode, 200);
});

t.test(
  "an account with passkeys moves to a cell whose passkeys are of the same domain",
  async (t) => {
    // The page on which the passkeys are used.
    const page: Said = {};
    const [passkey, phone] = [testPasskey(one.baseUrl, page), testPasskey(one.baseUrl, page)];
    const owner = await signUpWithPasskey(one, passkey);
    const ownerAt = (world: World) => (request: Parameters<typeof asOwner>[2]) =>
      asOwner(world.app, owner, request);
    const agent = await createAgent(one, owner, { dailyLimit: "10", allowlist: [PAYEE] });
    await chain.mint(agent.walletAddress, 20_000_000n);
    t.equal((await spend(one.app, agent, "3", "first")).statusCode, 200);
    const payout = privateKeyToAccount(generatePrivateKey()).address;
    const named = await ownerAt(one)({
      method: "PUT",
      url: "/api/payout",
      body: { address: payout },
    });
    t.equal(named.statusCode, 200, named.body);
    t.equal((await tryOffer(one, owner, phone)).statusCode, 200);
    const ids = [passkey.credentialId, phone.credentialId];
    const listed = await ownerAt(one)({ method: "PUT", url: "/api/passkeys", body: { ids } });
    t.equal(listed.statusCode, 200, listed.body);

    const refuses = async (why: RegExp, extra: Record<string, string> = {}): Promise<void> => {
      t.match(await command([owner.passkey.address], extra), { done: false, output: why });
      t.equal((await me(one.app, agent)).statusCode, 200, String(why));
    };
    await refuses(/the passkey "Phone" has signed nothing for localhost/);
    t.equal((await tryPasskeySignIn(one, phone)).statusCode, 200);
    const places = two.config.passkeys;
    if (!places) throw new Error("unreachable");
    two.config.passkeys = { ...places, domain: "c2.example" };
    await refuses(
      /belong to localhost in this cell, and to c2.example in the new one.*PASSKEY_DOMAIN/,
    );
    two.config.passkeys = places;
    await refuses(/the cell c2 does not answer which domain/, {
      CELLS: `${environment()["CELLS"]?.split(",")[0]},c2=http://127.0.0.1:9`,
    });
    await two.database.pool.query(
      "INSERT INTO owners (id, address) VALUES ('own_keys', '0x' || repeat('a', 40))",
    );
    await two.database.pool.query(
      "INSERT INTO passkeys (id, owner_id, name, x, y, status) VALUES ('pk', 'own_keys', 'same', $1, $2, 'active')",
      [phone.key.x, phone.key.y],
    );
    await refuses(/the new cell has the passkey "Phone" of another account/);
    await two.database.pool.query("DELETE FROM passkeys");
    const asked = await one.app.inject({
      method: "POST",
      url: "/api/agents/spend",
      headers: agent.headers,
      payload: { recipient: payout, amount: "1", requestApproval: true },
    });
    const { approvalId } = asked.json<{ approvalId: string }>();
    const decide = (what: string, body?: object) =>
      ownerAt(one)({ method: "POST", url: `/api/approvals/${approvalId}/${what}`, body });
    t.equal((await decide("approve", {})).statusCode, 200);
    await refuses(/approvals by passkeys that were not used yet/);
    t.equal((await decide("decline")).statusCode, 200);

    const done = await command([owner.passkey.address]);
    t.match(done, { done: true, output: /Done: / });
    const there = { code: "other_cell", cell: "c2", url: two.baseUrl };
    t.match((await me(one.app, agent)).json(), there);
    const back = await tryPasskeySignIn(one, passkey);
    t.equal(back.statusCode, 421, back.body);
    t.match(back.json(), there);

    t.match(
      (await tryPasskeySignIn(two, passkey)).json(),
      { code: "invalid_signature" },
      "by c1's page",
    );
    page.origin = two.baseUrl;
    const again = await signInWithPasskey(two, passkey);
    t.match((await spend(two.app, agent, "8", "over")).json(), { code: "daily_limit_exceeded" });
    const raised = await asOwner(two.app, again, {
      method: "PATCH",
      url: `/api/agents/${agent.id}`,
      body: { dailyLimit: "50" },
    });
    t.equal(raised.statusCode, 200, raised.body);
    t.equal((await spend(two.app, agent, "8", "raised")).statusCode, 200);
    const withdrawals = `/api/agents/${agent.id}/withdrawals`;
    const send = (url: string, payload: object) =>
      two.app.inject({ method: "POST", url, headers: again.headers, payload });
    const { order, typedData } = (await send(`${withdrawals}/prepare`, { amount: "1" })).json<{
      order: { to: string };
      typedData: Parameters<typeof phone.signTypedData>[0];
    }>();
    t.equal(order.to, payout, "named in the old cell");
    const signature = await phone.signTypedData(typedData);
    const withdrawn = await send(withdrawals, { order, signature });
    t.equal(withdrawn.statusCode, 200, withdrawn.body);
    t.equal(await chain.usdcOf(payout), 1_000_000n);
    for (const { app } of [one, two]) await assertAuditsHold(t, app.prisma);
  },
);

t.test("what cannot move says why, and nothing is changed", async (t) => {
  const owner = await ownerOfFirst();
  const { address } = owner.account;
  const agent = await createAgent(one, owner);
  const { pool } = one.database;
  const ownerId: string = (
    await pool.query("SELECT owner_id FROM agents WHERE id = $1", [agent.id])
  ).rows[0].owner_id;
  const refuses = async (why: RegExp, extra: Record<string, string> = {}): Promise<void> => {
    t.match(await command([address], extra), { done: false, output: why });
    t.equal((await me(one.app, agent)).statusCode, 200, String(why));
  };
  await refuses(/does not open what the new cell has sealed/, { TO_MASTER_KEYS: newKey("c2") });
  await refuses(/are one database/, { TO_DATABASE_URL: one.database.url });
  await refuses(/TO_CELL is this cell/, { TO_CELL: "c1" });
  await pool.query(
    `INSERT INTO channels (agent_id, id, chain_id, asset, receiver, receiver_authorizer, withdraw_delay, signer, salt)
     VALUES ($1, '0x' || repeat('1', 64), $2, $3, $3, $3, 86400, $3, '0x' || repeat('0', 64))`,
    [agent.id, chain.chainId, chain.usdc.toLowerCase()],
  );
  await refuses(/payment channels that are not closed/);
  await pool.query("DELETE FROM channels");
  await pool.query(
    "INSERT INTO passkeys (id, owner_id, name, x, y, status) VALUES ('pk', $1, 'key', '0x' || repeat('1', 64), '0x' || repeat('2', 64), 'active')",
    [ownerId],
  );
  await refuses(/the passkey "key" has signed nothing for localhost/);
  await pool.query("DELETE FROM passkeys");
  await two.database.pool.query("INSERT INTO owners (id, address) VALUES ('own_same', $1)", [
    address.toLowerCase(),
  ]);
  await refuses(/the new cell has an account/);
  await two.database.pool.query("DELETE FROM owners WHERE id = 'own_same'");

  // A team and its member are in one cell.
  const team = `0x${randomBytes(20).toString("hex")}`;
  await pool.query(
    "INSERT INTO owners (id, address, chain_id, team_name) VALUES ('own_team', $1, 2147483646, 'Us')",
    [team],
  );
  await pool.query(
    "INSERT INTO team_members (team_id, address, chain_id, name, role) VALUES ('own_team', $1, 0, 'Me', 'admin')",
    [address.toLowerCase()],
  );
  await refuses(/can only be in one cell.*team "Us".*--with-others/s);
  const teamRefuses = async (why: RegExp): Promise<void> => {
    t.match(await command([team, "--with-others"]), { done: false, output: why });
    t.equal((await me(one.app, agent)).statusCode, 200, String(why));
  };
  const byPasskey = Buffer.from("passkey1").toString("hex");
  await pool.query(
    `INSERT INTO waiting_orders (id, team_id, member, kind, nonce, chain_id, form, document, method, path, body, signature, expires_at)
     VALUES ('ord_key', 'own_team', 'Me', 'PayoutAddress', '0x' || repeat('1', 64), 0, 'numbers', '{}', 'PUT', '/api/payout', '{}', $1, now() + interval '1 day')`,
    [`0x${byPasskey.toUpperCase()}00`],
  );
  await teamRefuses(/requests of a team that a passkey signed/);
  await pool.query("UPDATE waiting_orders SET end_reason = 'withdrawn'");
  const nameRecoveryWallet = (digit: string, second: string) =>
    pool.query(
      `INSERT INTO owner_orders (nonce, kind, owner_id, agent_id, chain_id, document, digest, deadline, signature, used_at)
       VALUES ('0x' || repeat($1, 64), 'SecondWallet', 'own_team', '', 0, jsonb_build_object('second', $2::text),
               '0x' || repeat('0', 64), 0, decode($3, 'hex'), clock_timestamp())`,
      [digit, second, byPasskey],
    );
  await nameRecoveryWallet("1", address);
  await teamRefuses(/recovery wallets of teams that were named with passkeys/);
  await nameRecoveryWallet("2", `0x${"0".repeat(40)}`);
  t.match(await command([team, "--with-others"]), { done: true });
  const moved = await two.database.pool.query("SELECT id FROM owners WHERE id = ANY ($1)", [
    [ownerId, "own_team"],
  ]);
  t.equal(moved.rowCount, 2);
  t.equal((await me(two.app, agent)).statusCode, 200);
});
