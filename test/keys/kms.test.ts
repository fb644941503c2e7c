// Goal: with master and relayer keys in a KMS, payments settle as usual; a slow, throttled or faulty KMS leads to a
// clear refusal, nothing is signed or stays reserved, and keys move between environment and KMS in both directions,
// even if killed.
// Tier: full (tries every variant of one feature).
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { fileURLToPath } from "node:url";
import t, { type Test } from "tap";
import { parseEther, recoverTransactionAddress, type Address } from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { ensureServerBuild, prepare } from "../../server/local/bootstrap.mjs";
import { ConfigError, loadConfig } from "../../server/config.ts";
import { fromDer, addressOf, sign } from "../../server/core/signatures.ts";
import { Kms } from "../../server/infra/kms.ts";
import {
  KeyRing,
  sealWallet,
  unsigned,
  withPrivateKey,
} from "../../server/plugins/custody/envelope.ts";
import { kmsAccount, readRelayers } from "../../server/infra/relayer-signer.ts";
import { testApp, testEnvironment } from "../helpers/app.ts";
import { testChain } from "../helpers/chain.ts";
import { startKms, type TestKms } from "../helpers/moto.ts";
import { asOwner, createAgent, sealedWallets, signIn } from "../helpers/owner.ts";
import { until } from "../helpers/until.ts";
import { checkLedger, statusesOf, usdcOf } from "../spending/ledger.helper.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const usdc = 1_000_000n;
/** Ten times the timeout of a KMS call. */
const HANGS_MS = 30_000;
await prepare((line) => t.comment(line), [ensureServerBuild]);

t.test("settings: all mistakes in one list", async (t) => {
  const uuid = "1b1893ff-bb70-4882-af26-e355b0afd0ff";
  const arn = `arn:aws:kms:eu-central-1:123456789012:key/${uuid}`;
  const production = {
    PURSER_MODE: "production",
    FACILITATOR_OPEN: "true",
    DATABASE_URL: "postgres://user:pass@127.0.0.1:5432/purser",
    RPC_URL_5042002: "http://127.0.0.1:8545",
    RELAYER_KMS_KEYS: arn,
    MASTER_KEYS: `cloud:kms:${uuid},old:${randomBytes(32).toString("base64")}`,
  };
  const config = loadConfig(production);
  t.same(config.masterKeys[0], { kid: "cloud", kmsKeyId: uuid });
  t.same(config.relayerKmsKeys, [arn]);
  t.equal(config.timings.kmsCacheMs, 60_000);
  const problemsOf = (change: Record<string, string>, part?: "custody"): string => {
    try {
      loadConfig({ ...production, ...change }, part);
      return "";
    } catch (error) {
      if (error instanceof ConfigError) return error.problems.join("\n");
      throw error;
    }
  };
  const many = problemsOf({
    MASTER_KEYS: `a:kms:alias/mine,b:kms:${uuid},b:kms:${uuid}`,
    MASTER_KEY_ACTIVE: "c",
    RELAYER_KMS_KEYS: `nonsense,${arn},${arn}`,
    CUSTODY_SOCKET: "relative.sock",
  });
  for (const part of [
    /RELAYER_KMS_KEYS has "nonsense", which is not the id/,
    /RELAYER_KMS_KEYS lists a key twice/,
    /CUSTODY_SOCKET must be an absolute path/,
    /MASTER_KEYS is set beside CUSTODY_SOCKET/,
  ])
    t.match(many, part);
  const keys = problemsOf({ MASTER_KEYS: `a:kms:alias/x,b:kms:${uuid},b:kms:${uuid}` });
  t.match(keys, /"a", which is not the id or ARN of a KMS key/);
  t.match(keys, /names "b" twice/);
  const socket = "/run/purser/custody.sock";
  t.equal(problemsOf({ CUSTODY_SOCKET: socket, MASTER_KEYS: "" }), "", "no master key here");
  t.match(problemsOf({ MASTER_KEYS: "" }, "custody"), "CUSTODY_SOCKET is missing");
  t.match(
    problemsOf({ CUSTODY_SOCKET: socket, MASTER_KEYS: "" }, "custody"),
    "MASTER_KEYS is missing",
  );
  t.equal(
    problemsOf({ CUSTODY_SOCKET: socket, RELAYER_KMS_KEYS: "", FACILITATOR_OPEN: "" }, "custody"),
    "",
    "the custody process needs no relayer",
  );
  t.match(problemsOf({ CUSTODY_SOCKET: `/${"long".repeat(30)}` }), "at most 100 bytes");
  const local = { PURSER_MODE: "local", DATABASE_URL: "", RPC_URL_5042002: "" };
  t.match(problemsOf({ ...local, CUSTODY_SOCKET: socket }), "CUSTODY_SOCKET is set, but");
  t.match(problemsOf(local), "RELAYER_KMS_KEYS is set, but");
});

t.test("DER signatures of a KMS", async (t) => {
  const key = randomBytes(32);
  const address = addressOf(key);
  const digest = randomBytes(32);
  const own = sign(digest, key);
  const [r, s] = [BigInt(own.slice(0, 66)), BigInt(`0x${own.slice(66, 130)}`)];
  const ORDER = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n;
  t.equal(fromDer(der(r, s), digest, address), own, "low s");
  t.equal(fromDer(der(r, ORDER - s), digest, address), own, "high s is normalised to low s");
  t.equal(fromDer(der(r, s), randomBytes(32), address), undefined, "for another digest");
  t.equal(fromDer(der(r, s), digest, addressOf(randomBytes(32))), undefined, "by another key");
  for (const bytes of [new Uint8Array(), randomBytes(70), der(0n, 0n), der(r, ORDER)])
    t.equal(fromDer(bytes, digest, address), undefined, "no valid signature");
});

const kms = await startKms(t);
t.test(
  "a KMS",
  { skip: kms ? false : "moto_server is not on this machine (pip install 'moto[server]')" },
  async (t) => kms && withKms(t, kms),
);

async function withKms(t: Test, kms: TestKms): Promise<void> {
  const relayerKey = await kms.makeKey("ECC_SECG_P256K1");
  const master = await kms.makeKey("SYMMETRIC_DEFAULT");
  const second = await kms.makeKey("SYMMETRIC_DEFAULT");
  const client = new Kms();
  t.teardown(() => client.close());
  const relayer = await kmsAccount(client, relayerKey);

  await t.test("the relayer's account", async (t) => {
    const transaction = {
      type: "eip1559",
      chainId: 5042002,
      nonce: 7,
      to: relayer.address,
      gas: 21_000n,
      maxFeePerGas: 10n,
      maxPriorityFeePerGas: 1n,
    } as const;
    for (let count = 0; count < 8; count += 1) {
      const raw = await relayer.signTransaction({ ...transaction, nonce: count });
      t.equal(
        await recoverTransactionAddress({ serializedTransaction: raw as `0x02${string}` }),
        relayer.address,
      );
    }
    const wrong = await kms.makeKey("ECC_NIST_P256");
    await t.rejects(kmsAccount(client, wrong), /is not of ECC_SECG_P256K1/, "another curve");
    await t.rejects(
      readRelayers({ relayerPrivateKeys: [], relayerKmsKeys: [relayerKey, relayerKey] }, client),
      /one account twice/,
    );
    const liar = { publicKey: client.publicKey.bind(client), sign: async () => randomBytes(70) };
    await t.rejects((await kmsAccount(liar, relayerKey)).signTransaction(transaction), {
      code: "keys_unavailable",
    });
  });

  const oldKey = `old:${randomBytes(32).toString("base64")}`;
  const keys = `${oldKey},cloud:kms:${master},cloud2:kms:${second}`;
  const env = {
    RELAYER_PRIVATE_KEYS: "",
    RELAYER_KMS_KEYS: relayerKey,
    MASTER_KEYS: keys,
    MASTER_KEY_ACTIVE: "cloud",
  };
  const chain = await testChain(t);
  await chain.testClient.setBalance({ address: relayer.address, value: parseEther("100") });
  const ctx = await testApp(t, { chain, env, timings: { kmsCacheMs: 0 } });
  const { app, database } = ctx;
  const owner = await signIn(ctx);
  const payee = privateKeyToAccount(generatePrivateKey()).address;
  const agent = await createAgent(ctx, owner, { dailyLimit: "2", allowlist: [payee] });
  await chain.mint(agent.walletAddress, 50n * usdc);
  const spendAt = (to: typeof app) => async (amount: string) => {
    const answer = await to.inject({
      method: "POST",
      url: "/api/agents/spend",
      headers: agent.headers,
      payload: JSON.stringify({ recipient: payee, amount }),
    });
    const body = answer.json<{ code?: string; txHash?: string; detail?: string }>();
    return { status: answer.statusCode, ...body };
  };
  const spend = spendAt(app);

  await t.test("a payment settles with keys of the KMS", async (t) => {
    const paid = await spend("0.5");
    t.equal(paid.status, 200, JSON.stringify(paid));
    const mined = await chain.publicClient.getTransaction({ hash: paid.txHash as Address });
    t.equal(mined.from, relayer.address.toLowerCase());
    const [wallet] = await sealedWallets(database);
    t.equal(wallet?.kid, "cloud");
    const anchor = kms.operations.length;
    const patch = {
      method: "PATCH",
      url: `/api/agents/${agent.id}`,
      body: { dailyLimit: "1.9" },
    } as const;
    t.equal((await asOwner(app, owner, patch)).statusCode, 200);
    t.ok(
      kms.operations.slice(anchor).includes("ReEncrypt"),
      "resealing never reveals the data key",
    );
    t.notOk(kms.operations.slice(anchor).includes("Decrypt"));
  });

  await t.test("small secrets use the same keys", async (t) => {
    const sealed = await app.secretBox.seal("webhook|1", Buffer.from("secret"));
    t.notOk(Buffer.from(sealed).includes("secret"));
    t.equal(Buffer.from(await app.secretBox.open("webhook|1", sealed)).toString(), "secret");
    await t.rejects(app.secretBox.open("webhook|2", sealed), { name: "CustodyError" });
    const flipped = Uint8Array.from(sealed);
    flipped[60] = (flipped[60] ?? 0) ^ 1;
    await t.rejects(app.secretBox.open("webhook|1", flipped), { name: "CustodyError" });
    t.same(await app.sharedSecret("test"), await app.sharedSecret("test"), "the same for all");
  });

  await t.test("a data key wrapped for other rules cannot be decrypted: an alarm", async (t) => {
    const { rows } = await database.pool.query<{ wrapped: Buffer }>(
      "SELECT wrapped_data_key AS wrapped FROM agent_wallets WHERE agent_id = $1",
      [agent.id],
    );
    const put = (bytes: Uint8Array | undefined) =>
      database.pool.query("UPDATE agent_wallets SET wrapped_data_key = $2 WHERE agent_id = $1", [
        agent.id,
        bytes,
      ]);
    const other = await client.encrypt(master, randomBytes(32), { "purser:of": agent.id });
    await put(other);
    t.equal((await spend("0.1")).code, "policy_not_signed");
    await put(rows[0]?.wrapped);
    t.equal((await spend("0.1")).status, 200);
  });

  for (const mode of ["hangs", "throttles", "garbage"] as const)
    await t.test(`a KMS that ${mode}: refused in time, and the budget is released`, async (t) => {
      const before = await statusesOf(ctx, agent.id);
      kms.mode = mode;
      const startMs = performance.now();
      const refused = await spend("0.1");
      t.ok(performance.now() - startMs < HANGS_MS, "it does not wait forever");
      t.equal(refused.status, 503, JSON.stringify(refused));
      t.match(
        refused.code,
        mode === "garbage" ? /keys_unavailable|policy_not_signed/ : "keys_unavailable",
      );
      const after = await statusesOf(ctx, agent.id);
      t.equal(after["voided"], (before["voided"] ?? 0) + 1, "the reservation is released");
      t.equal(after["settled"], before["settled"], "nothing was paid");
      const ready = await app.inject({ url: "/api/ready" });
      if (mode === "hangs")
        t.equal(ready.statusCode, 503, "readiness reports it to the load balancer");
      kms.mode = "open";
      t.equal((await spend("0.1")).status, 200, "recovers by itself");
    });

  await t.test(
    "only the relayer's signer is unavailable: signed payments wait, new ones are refused",
    async (t) => {
      const kept = { ...env, SETTLE_WAIT_MS: "1500" };
      const cached = await testApp(t, { chain, database, env: kept });
      const pay = spendAt(cached.app);
      // One engine at a time: the first one must release its lane.
      await app.close();
      await until(async () => (await pay("0.01")).status === 200);
      kms.mode = "hangs";
      t.equal((await pay("0.01")).code, "payment_status_unknown", "signed, and it waits");
      // A different amount each time: an identical call would join the waiting one.
      let sent = 0;
      const another = () => pay(`0.01${String((sent += 1)).padStart(3, "0")}`);
      await until(async () => (await another()).code === "keys_unavailable", 30_000);
      kms.mode = "open";
      await until(async () => {
        const { settled, reserved, ...others } = await statusesOf(cached, agent.id);
        return !others["submitted"] && !others["unknown"] && !reserved && Boolean(settled);
      }, 30_000);
      await until(async () => (await another()).status === 200);
      await checkLedger(t, cached, { agentId: agent.id, payee });
      t.equal(await usdcOf(cached, payee), await paidTo(), "once each");
    },
  );

  await t.test(
    "keys:rotate from the environment to the KMS and back, killed in between",
    async (t) => {
      const FILLERS = 450;
      await addWallets(FILLERS);
      const countOf = async (kid: string): Promise<number> => {
        const { rows } = await database.pool.query<{ count: number }>(
          "SELECT count(*)::int AS count FROM agent_wallets WHERE kid = $1",
          [kid],
        );
        return rows[0]?.count ?? -1;
      };
      t.equal(await countOf("old"), FILLERS);
      const killed = await rotate("cloud", { kill: true });
      t.equal(killed.signal, "SIGKILL");
      const left = await countOf("old");
      t.ok(left > 0 && left < FILLERS, `${left} of ${FILLERS} left when it was killed`);
      kms.mode = "throttles";
      setTimeout(() => (kms.mode = "open"), 1_500);
      const done = await rotate("cloud");
      t.equal(done.code, 0, done.output);
      t.equal(await countOf("old"), 0, "a temporarily throttled KMS does not end it");
      t.match(await rotate("cloud2"), { code: 0 }, "to another key of the KMS");
      t.equal(await countOf("cloud2"), FILLERS + 1);
      const back = await rotate("old");
      t.equal(back.code, 0, back.output);
      t.match(back.output, "sealed secrets as well");
      t.equal(await countOf("old"), FILLERS + 1);
      const ring = new KeyRing(loadConfig(environment("old")).masterKeys, "old");
      const wallets = await sealedWallets(database);
      for (const wallet of [wallets[0], wallets.at(-1)])
        if (wallet) t.ok(await withPrivateKey(ring, wallet, wallet, (key) => key.length === 32));
      const alone = await testApp(t, {
        chain,
        database,
        env: { ...env, MASTER_KEYS: oldKey, MASTER_KEY_ACTIVE: "old" },
        timings: { kmsCacheMs: 0 },
      });
      t.equal(
        (await spendAt(alone.app)("0.01")).status,
        200,
        "pays without the master key of the KMS",
      );
    },
  );

  await t.test("pausing an agent needs no key", async (t) => {
    const again = await testApp(t, { chain, database, env, timings: { kmsCacheMs: 0 } });
    const own = await signIn(again);
    const other = await createAgent(again, own);
    kms.mode = "hangs";
    const paused = await asOwner(again.app, own, {
      method: "PATCH",
      url: `/api/agents/${other.id}`,
      body: { status: "paused" },
    });
    kms.mode = "open";
    t.equal(paused.statusCode, 200, paused.body);
  });

  async function paidTo(): Promise<bigint> {
    const { rows } = await database.pool.query<{ sum: string }>(
      "SELECT sum(amount)::text AS sum FROM payments WHERE status = 'settled' AND counterparty = $1",
      [payee.toLowerCase()],
    );
    return BigInt(rows[0]?.sum ?? 0);
  }

  function environment(active: string): Record<string, string> {
    return {
      ...testEnvironment({ databaseUrl: database.url, chain, port: 3000, env }),
      MASTER_KEY_ACTIVE: active,
    };
  }

  async function addWallets(count: number): Promise<void> {
    const ring = new KeyRing(loadConfig(environment("old")).masterKeys, "old");
    const seal = unsigned({ address: owner.account.address.toLowerCase(), chainId: 0 });
    for (let index = 0; index < count; index += 1) {
      const agentId = `agt_filler${String(index).padStart(6, "0")}`;
      const address = `0xf${index.toString(16).padStart(39, "0")}`;
      const sealed = await sealWallet(ring, { agentId, address, ...seal }, randomBytes(32));
      await database.pool.query(
        `INSERT INTO agents (id, owner_id, name, network, wallet_address, daily_limit)
         SELECT $1, (SELECT id FROM owners LIMIT 1), 'filler', 'eip155:5042002', $2, 0`,
        [agentId, address],
      );
      await database.pool.query(
        `INSERT INTO agent_wallets (agent_id, address, kid, wrapped_data_key, ciphertext) VALUES ($1, $2, 'old', $3, $4)`,
        [agentId, address, sealed.wrappedDataKey, sealed.ciphertext],
      );
    }
  }

  async function rotate(
    active: string,
    options: { kill?: boolean } = {},
  ): Promise<{ code: number | null; signal: string | null; output: string }> {
    const child = spawn(process.execPath, ["server/dist/keys-rotate.js"], {
      cwd: ROOT,
      env: { PATH: process.env["PATH"], ...kms.env, ...environment(active) },
    });
    let output = "";
    const read = (chunk: Buffer): void => {
      output += chunk.toString();
      if (options.kill && output.includes(" left\n")) child.kill("SIGKILL");
    };
    child.stdout.on("data", read);
    child.stderr.on("data", read);
    return new Promise((resolve) => {
      child.on("close", (code, signal) => resolve({ code, signal, output }));
    });
  }
}

/** DER: a SEQUENCE of two INTEGERs. */
function der(r: bigint, s: bigint): Uint8Array {
  const integer = (value: bigint): Buffer => {
    const hex = value.toString(16);
    const bytes = Buffer.from(hex.length % 2 ? `0${hex}` : hex, "hex");
    const body = (bytes[0] ?? 0) >= 0x80 ? Buffer.concat([Buffer.from([0]), bytes]) : bytes;
    return Buffer.concat([Buffer.from([2, body.length]), body]);
  };
  const body = Buffer.concat([integer(r), integer(s)]);
  return Buffer.concat([Buffer.from([0x30, body.length]), body]);
}
