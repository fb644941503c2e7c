// Goal: a wallet key signs only for its own agent and address; with anything altered, moved or re-wrapped, nothing
// is signed.
import { randomBytes } from "node:crypto";
import t, { type Test } from "tap";
import { recoverTypedDataAddress, type Address, type Hex } from "viem";
import { privateKeyToAccount } from "viem/accounts";
import { addressOf, isPrivateKey, sign } from "../../server/core/signatures.ts";
import { loadConfig, ConfigError } from "../../server/config.ts";
import {
  CustodyError,
  KeyRing,
  unsigned,
  sealWallet,
  withPrivateKey,
} from "../../server/plugins/custody/envelope.ts";
import { findNetwork } from "../../server/core/networks.ts";
import { TRANSFER_TYPES } from "../helpers/eip3009.ts";
import { testApp } from "../helpers/app.ts";
import { createAgent, sealedWallets, signIn } from "../helpers/owner.ts";

const network = findNetwork("eip155:5042002");
if (!network) throw new Error("no network");
const domain = {
  name: "USDC",
  version: "2",
  chainId: 5042002,
  verifyingContract: "0x3600000000000000000000000000000000000000",
} as const;
const CANCEL = {
  CancelAuthorization: [
    { name: "authorizer", type: "address" },
    { name: "nonce", type: "bytes32" },
  ],
} as const;

const PAYEE: Address = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8";
const BY_POLICY = { kind: "policy" } as const;
const randomHash = (): Hex => `0x${randomBytes(32).toString("hex")}`;

const hex = (bytes: Buffer): string => `\\x${bytes.toString("hex")}`;

t.test("the elliptic-curve library agrees with another implementation", async (t) => {
  for (let index = 0; index < 50; index += 1) {
    const key = randomBytes(32);
    const hash = randomBytes(32);
    const account = privateKeyToAccount(`0x${key.toString("hex")}`);
    t.equal(addressOf(key), account.address.toLowerCase());
    t.equal(sign(hash, key), await account.sign({ hash: `0x${hash.toString("hex")}` }));
  }
  t.notOk(isPrivateKey(new Uint8Array(32)), "zero is not a valid key");
  t.notOk(
    isPrivateKey(new Uint8Array(32).fill(255)),
    "neither is a number above the curve's order",
  );
});

t.test("the envelope", async (t) => {
  const key = randomBytes(32);
  const ring = new KeyRing([{ kid: "a", key }], "a");
  const wallet = {
    agentId: "agt_1",
    address: "0xabc",
    ...unsigned({ address: "0xdef", chainId: 0 }),
  };
  const secret = randomBytes(32);
  const sealed = await sealWallet(ring, wallet, secret);
  t.same(await withPrivateKey(ring, wallet, sealed, (key) => Buffer.from(key)), secret);
  let seen: Uint8Array = new Uint8Array();
  await withPrivateKey(ring, wallet, sealed, (key) => void (seen = key));
  t.same(Buffer.from(seen), Buffer.alloc(32), "the key is overwritten after use");
  const twice = await sealWallet(ring, wallet, secret);
  t.notSame(twice.ciphertext, sealed.ciphertext, "sealing twice never gives the same bytes");

  const CUSTODY_ERROR = { name: "CustodyError" };
  const opens = (change: Partial<typeof sealed>, name = wallet, by = ring) =>
    withPrivateKey(by, name, { ...sealed, ...change }, () => "opened");
  for (const field of ["ciphertext", "wrappedDataKey"] as const) {
    const bytes = sealed[field];
    for (let index = 0; index < bytes.length; index += 1) {
      const flipped = Uint8Array.from(bytes);
      flipped[index] = (flipped[index] ?? 0) ^ 1;
      await t.rejects(
        opens({ [field]: flipped }),
        CUSTODY_ERROR,
        `${field}: byte ${index} flipped`,
      );
    }
    await t.rejects(opens({ [field]: bytes.subarray(1) }), CUSTODY_ERROR, `${field}: shorter`);
    await t.rejects(opens({ [field]: new Uint8Array() }), CUSTODY_ERROR, `${field}: empty`);
  }
  await t.rejects(opens({}, { ...wallet, agentId: "agt_2" }), CUSTODY_ERROR, "another agent");
  await t.rejects(opens({}, { ...wallet, address: "0xabd" }), CUSTODY_ERROR, "another address");
  for (const [what, change] of Object.entries({
    owner: { ownerAddress: "0xdee" },
    "owner's chain": { ownerChainId: 1 },
    policy: { policyDigest: randomHash() },
    rules: { rulesDigest: randomHash() },
    revision: { revision: 1 },
  }))
    await t.rejects(
      opens({}, { ...wallet, ...change }),
      CUSTODY_ERROR,
      `sealed for another ${what}`,
    );
  await t.rejects(opens({ kid: "b" }), /master key "b"/, "a kid that is not configured");
  const otherKey = new KeyRing([{ kid: "a", key: randomBytes(32) }], "a");
  await t.rejects(opens({}, wallet, otherKey), CUSTODY_ERROR, "the same kid with another key");
  const both = new KeyRing([ring.active, { kid: "b", key }], "a");
  await t.rejects(
    opens({ kid: "b" }, wallet, both),
    CUSTODY_ERROR,
    "the same key under another kid",
  );
  t.throws(() => new KeyRing([], "a"), CustodyError);
});

t.test("signing", async (t) => {
  const service = await testApp(t);
  const { app, database } = service;
  const owner = await signIn(service);
  const rules = { dailyLimit: "9".repeat(38), allowlist: [PAYEE] };
  const agent = await createAgent(service, owner, rules);
  const other = await createAgent(service, owner, rules);
  const authorization = (from: Address, over: Record<string, unknown> = {}) => ({
    chainId: 5042002,
    asset: domain.verifyingContract as Address,
    from,
    to: PAYEE,
    value: 1_500_000n,
    validAfter: 0n,
    validBefore: 1_900_000_000n,
    nonce: randomHash(),
    ...over,
  });
  const signIt = (id: string, from: Address, over = {}) =>
    app.custody.signAuthorization(id, authorization(from, over), BY_POLICY);
  const refuses = (t: Test, promise: Promise<unknown>, name: string) =>
    t.rejects(promise, CustodyError, name);
  const alarms = (t: Test, promise: Promise<unknown>, name: string) =>
    t.rejects(promise, { code: "policy_not_signed" }, name);

  await t.test("recovers to the wallet, for random authorizations", async (t) => {
    for (let index = 0; index < 20; index += 1) {
      const message = authorization(agent.walletAddress, {
        value: BigInt(`0x${randomBytes(1 + (index % 16)).toString("hex")}`),
        validAfter: BigInt(index),
      });
      const signature = await app.custody.signAuthorization(agent.id, message, BY_POLICY);
      const signer = await recoverTypedDataAddress({
        domain,
        types: TRANSFER_TYPES,
        primaryType: "TransferWithAuthorization",
        message,
        signature,
      });
      t.equal(signer, agent.walletAddress);
    }
    const nonce = randomHash();
    const signature = await app.custody.signCancel(agent.id, {
      chainId: 5042002,
      asset: domain.verifyingContract,
      nonce,
    });
    const signer = await recoverTypedDataAddress({
      domain,
      types: CANCEL,
      primaryType: "CancelAuthorization",
      message: { authorizer: agent.walletAddress, nonce },
      signature,
    });
    t.equal(signer, agent.walletAddress);
  });

  await t.test("only valid authorizations of a known agent's own wallet", async (t) => {
    await refuses(t, signIt(agent.id, other.walletAddress), "another agent's wallet");
    await refuses(t, signIt("agt_none", agent.walletAddress), "no such agent");
    await refuses(
      t,
      signIt(agent.id, agent.walletAddress, { chainId: 1 }),
      "a chain that is not configured",
    );
    await refuses(
      t,
      signIt(agent.id, agent.walletAddress, { asset: other.walletAddress }),
      "another token",
    );
    await refuses(t, signIt(agent.id, agent.walletAddress, { to: "0x12" }), "a short address");
    await refuses(t, signIt(agent.id, agent.walletAddress, { nonce: "0x12" }), "a short nonce");
    await refuses(t, signIt(agent.id, agent.walletAddress, { value: -1n }), "a negative value");
    await refuses(
      t,
      signIt(agent.id, agent.walletAddress, { value: 1n << 256n }),
      "a value too large",
    );
  });

  await t.test("ciphertext of another row", async (t) => {
    const { rows } = await database.pool.query("SELECT * FROM agent_wallets ORDER BY agent_id");
    await database.pool.query(
      `UPDATE agent_wallets a SET ciphertext = b.ciphertext, wrapped_data_key = b.wrapped_data_key
         FROM agent_wallets b WHERE a.agent_id = $1 AND b.agent_id = $2`,
      [agent.id, other.id],
    );
    await alarms(t, signIt(agent.id, agent.walletAddress), "moved");
    t.ok(await signIt(other.id, other.walletAddress), "the other agent still signs");

    // An intruder may move address and ciphertext together: the agent id still differs.
    await database.pool.query(
      "UPDATE agent_wallets SET address = '0x' || repeat('1', 40) WHERE agent_id = $1",
      [other.id],
    );
    await database.pool.query("UPDATE agent_wallets SET address = lower($2) WHERE agent_id = $1", [
      agent.id,
      other.walletAddress,
    ]);
    await alarms(t, signIt(agent.id, other.walletAddress), "moved with its address");
    for (const row of rows as {
      agent_id: string;
      address: string;
      ciphertext: Buffer;
      wrapped_data_key: Buffer;
    }[])
      await database.pool.query("DELETE FROM agent_wallets WHERE agent_id = $1", [row.agent_id]);
    for (const row of rows as {
      agent_id: string;
      address: string;
      kid: string;
      ciphertext: Buffer;
      wrapped_data_key: Buffer;
    }[])
      await database.pool.query(
        "INSERT INTO agent_wallets SELECT * FROM json_populate_record(NULL::agent_wallets, $1)",
        [
          JSON.stringify({
            ...row,
            ciphertext: hex(row.ciphertext),
            wrapped_data_key: hex(row.wrapped_data_key),
          }),
        ],
      );
    t.ok(await signIt(agent.id, agent.walletAddress), "signs again after the row is restored");
  });

  await t.test("one byte flipped in the row, or another kid", async (t) => {
    for (const column of ["ciphertext", "wrapped_data_key"]) {
      const flip = () =>
        database.pool.query(
          `UPDATE agent_wallets SET ${column} = set_byte(${column}, 40, get_byte(${column}, 40) # 1) WHERE agent_id = $1`,
          [agent.id],
        );
      await flip();
      await alarms(t, signIt(agent.id, agent.walletAddress), `${column} flipped`);
      await flip();
      t.ok(await signIt(agent.id, agent.walletAddress), `${column} restored`);
    }
    await database.pool.query("UPDATE agent_wallets SET kid = 'gone' WHERE agent_id = $1", [
      agent.id,
    ]);
    await t.rejects(signIt(agent.id, agent.walletAddress), {
      name: "CustodyError",
      message: /"gone"/,
    });
  });

  await t.test("a key that decrypts but belongs to another address", async (t) => {
    const ring = new KeyRing(service.config.masterKeys, service.config.masterKeyActive);
    const name = (await sealedWallets(database)).find(({ agentId }) => agentId === agent.id);
    if (!name) throw new Error("no wallet");
    const sealed = await sealWallet(ring, name, randomBytes(32));
    await database.pool.query(
      "UPDATE agent_wallets SET kid = $2, ciphertext = $3, wrapped_data_key = $4 WHERE agent_id = $1",
      [agent.id, sealed.kid, sealed.ciphertext, sealed.wrappedDataKey],
    );
    await t.rejects(signIt(agent.id, agent.walletAddress), {
      name: "CustodyError",
      message: /another address/,
    });
  });
});

t.test("production refuses to start on weak master keys", async (t) => {
  const environment = (over: Record<string, string>) => ({
    PURSER_MODE: "production",
    FACILITATOR_OPEN: "true",
    DATABASE_URL: "postgres://localhost/purser",
    RPC_URL_5042002: "http://127.0.0.1:8545",
    RELAYER_PRIVATE_KEYS: `0x${"ab".repeat(32)}`,
    ...over,
  });
  const strong = `k1:${randomBytes(32).toString("base64")}`;
  t.ok(loadConfig(environment({ MASTER_KEYS: strong })));
  const base64 = (bytes: Buffer | string) => Buffer.from(bytes).toString("base64");
  const cases: [string, Record<string, string>][] = [
    ["missing", {}],
    ["empty", { MASTER_KEYS: "" }],
    ["short", { MASTER_KEYS: `k1:${base64(randomBytes(16))}` }],
    ["31 bytes", { MASTER_KEYS: `k1:${base64(randomBytes(31))}` }],
    ["long", { MASTER_KEYS: `k1:${base64(randomBytes(64))}` }],
    ["zeros", { MASTER_KEYS: `k1:${base64(Buffer.alloc(32))}` }],
    ["one byte repeated", { MASTER_KEYS: `k1:${base64(Buffer.alloc(32, 7))}` }],
    [
      "counting up",
      { MASTER_KEYS: `k1:${base64(Buffer.from(Array.from({ length: 32 }, (_, index) => index)))}` },
    ],
    ["words", { MASTER_KEYS: `k1:${base64("change-me-change-me-change-me-32")}` }],
    ["no kid", { MASTER_KEYS: base64(randomBytes(32)) }],
    ["not base64", { MASTER_KEYS: "k1:not*base64" }],
    ["same kid twice", { MASTER_KEYS: `${strong},${strong}` }],
    ["active one unknown", { MASTER_KEYS: strong, MASTER_KEY_ACTIVE: "k2" }],
  ];
  for (const [name, over] of cases) {
    t.throws(() => loadConfig(environment(over)), ConfigError, name);
    const secret = over["MASTER_KEYS"]?.split(":")[1];
    if (secret !== undefined && secret.length > 8)
      try {
        loadConfig(environment(over));
      } catch (error) {
        t.notOk(String(error).includes(secret), `${name}: the error does not contain the key`);
      }
  }
});

t.test("readiness reports a master key that was removed too early", async (t) => {
  const first = `k1:${randomBytes(32).toString("base64")}`;
  const second = `k2:${randomBytes(32).toString("base64")}`;
  const before = await testApp(t, {
    env: { MASTER_KEYS: `${first},${second}`, MASTER_KEY_ACTIVE: "k1" },
  });
  const custodyOf = async (service: typeof before) => {
    const answer = await service.app.inject({ url: "/api/ready" });
    return answer.json<{ parts: Record<string, { ok: boolean }> }>().parts["custody"]?.ok;
  };
  t.equal(await custodyOf(before), true, "no wallets yet");
  await createAgent(before, await signIn(before));
  t.equal(await custodyOf(before), true);
  const shared = { database: before.database, chain: before.chain };
  t.equal(await custodyOf(await testApp(t, { ...shared, env: { MASTER_KEYS: first } })), true);
  const without = { ...shared, env: { MASTER_KEYS: second } };
  await t.rejects(
    testApp(t, without),
    { message: /sealed under master key "k1"/ },
    "shared service secrets are not regenerated when their key is missing",
  );
  await before.database.pool.query("DELETE FROM service_secrets");
  t.equal(await custodyOf(await testApp(t, without)), false);
});
