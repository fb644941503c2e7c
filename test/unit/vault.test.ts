// Goal: a wallet key is opened only for the seal that it was made for, a seal changes only as its owner signed, and each
// signature is for the wallet, network and contract that were checked.
import { verifySIWxSignature } from "@x402/extensions/sign-in-with-x";
import t from "tap";
import {
  encodeFunctionData,
  getAddress,
  parseSignature,
  recoverTransactionAddress,
  recoverTypedDataAddress,
  serializeTransaction,
  type Address,
  type Hex,
} from "viem";
import { addressOf, isPrivateKey, sign } from "../../server/core/signatures.ts";
import type { Authorization } from "../../server/core/authorization.ts";
import { orderDigest, policyOrder, type Orders } from "../../server/core/orders.ts";
import { rulesDigest, type RulesInForce } from "../../server/core/rules.ts";
import type { Cover, Covers, PaidAt, Sealed } from "../../server/plugins/custody/covers.ts";
import {
  CustodyError,
  decrypt,
  encrypt,
  KeyRing,
  NOTHING,
  rewrapWallet,
  sealWallet,
  unsigned,
  withPrivateKey,
  type Seal,
  type WalletName,
} from "../../server/plugins/custody/envelope.ts";
import type { HeldWallet } from "../../server/plugins/custody/key-vault.ts";
import {
  SealChanges,
  type SignedMove,
  type SignedOrderDocument,
} from "../../server/plugins/custody/seal-changes.ts";
import { cellOfPayer, readCells, type Cell } from "../../server/core/cells.ts";
import { Vault } from "../../server/plugins/custody/vault.ts";
import { KmsAltered, type Kms, type KmsContext } from "../../server/infra/kms.ts";
import type { PlainTransaction } from "../../server/infra/relayer-signer.ts";
import {
  depositDigestOf,
  depositOf,
  ownVoucher,
  voucherDigestOf,
  type ChannelOrder,
} from "../../server/schemes/batch-settlement/paying.ts";
import { SPENDERS } from "../../server/schemes/index.ts";
import { EXACT_PROXY } from "../../server/schemes/permit2/onchain.ts";
import { CHANNELS, CHANNELS_ABI } from "../helpers/batch-settlement.ts";
import { transferOf } from "../helpers/eip3009.ts";
import { until } from "../helpers/until.ts";
import { ARC, BASE_SEPOLIA } from "./payment-samples.ts";

const address = (digit: string): Address => `0x${digit.repeat(40)}`;
const hash = (digit: string): Hex => `0x${digit.repeat(64)}`;
const AGENT = "agt_1";
const OWNER = address("b");
const SECOND = address("c");
const PAYEE = address("1");
const NOW = 1_800_000_000n;
const SIGNATURE: Hex = "0x51";
const SECOND_SIGNATURE: Hex = "0x52";
const PRIVATE_KEY = Buffer.from("7".repeat(64), "hex");
const WALLET = addressOf(PRIVATE_KEY);
const SPENDER = SPENDERS[0] as Address;
const masterKey = (kid: string) => ({ kid, key: Buffer.alloc(32, kid) });
const ring = new KeyRing([masterKey("k1"), masterKey("k2")], "k1");

const rulesOf = (more: Partial<RulesInForce> = {}): RulesInForce => ({
  dailyLimitAtomic: 100n,
  weeklyLimitAtomic: null,
  monthlyLimitAtomic: null,
  perPaymentLimitAtomic: null,
  paymentsPerHour: null,
  fetch: "any",
  expiresAtSeconds: null,
  status: "active",
  payees: [],
  ...more,
});
const NARROWER = rulesOf({ dailyLimitAtomic: 99n });
const WIDER = rulesOf({ dailyLimitAtomic: 101n });

/** The class of a custody error with its message, or the code of an error for the caller. */
async function refusalOf(work: () => unknown): Promise<string | null> {
  try {
    await work();
    return null;
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    return (error as { code?: string }).code ?? `${error.constructor.name}: ${error.message}`;
  }
}

async function held(more: Partial<Seal> = {}): Promise<HeldWallet & { address: Address }> {
  const name: WalletName & { address: Address } = {
    agentId: AGENT,
    address: WALLET,
    ownerAddress: OWNER,
    ownerChainId: 0,
    policyDigest: hash("5"),
    rulesDigest: rulesDigest(rulesOf()),
    revision: 4,
    ...more,
  };
  return { ...name, ...(await sealWallet(ring, name, PRIVATE_KEY)) };
}

const opens = (wallet: HeldWallet, keys = ring) =>
  refusalOf(() =>
    withPrivateKey(keys, wallet, wallet, (key) => {
      if (!Buffer.from(key).equals(PRIVATE_KEY)) throw new Error("another key");
    }),
  );

t.test("a box opens with its key and name, and unaltered", (t) => {
  const key = Buffer.alloc(32, 1);
  const name = Buffer.from("name");
  const box = encrypt(key, Buffer.from("secret"), name);
  t.equal(Buffer.from(decrypt(key, box, name)).toString(), "secret");
  t.notSame(box, encrypt(key, Buffer.from("secret"), name), "no two boxes are alike");
  t.throws(() => decrypt(Buffer.alloc(32, 2), box, name));
  t.throws(() => decrypt(key, box, Buffer.from("other")));
  for (let at = 0; at < box.length; at += 1) {
    const altered = Uint8Array.from(box);
    altered[at] = (altered[at] ?? 0) ^ 1;
    t.throws(() => decrypt(key, altered, name), `byte ${at}`);
  }
  t.throws(() => decrypt(key, box.subarray(0, 27), name), RangeError);
  const empty = encrypt(key, Buffer.alloc(0), name);
  t.equal(decrypt(key, empty, name).length, 0, "the shortest box");
  t.end();
});

t.test("a wallet's key is bound to every fact of its seal", async (t) => {
  const wallet = await held();
  t.equal(await opens(wallet), null);
  const other: Partial<HeldWallet>[] = [
    { agentId: "agt_2" },
    { address: SECOND },
    { ownerAddress: SECOND },
    { ownerChainId: 1 },
    { policyDigest: hash("6") },
    { rulesDigest: hash("6") },
    { revision: 5 },
    { kid: "k2" },
    { wrappedDataKey: wallet.wrappedDataKey.subarray(1) },
    { ciphertext: wallet.ciphertext.subarray(1) },
  ];
  for (const change of other)
    t.match(await opens({ ...wallet, ...change }), /^NotSignedFor: .* does not open/);
  t.match(await opens({ ...wallet, kid: "k3" }), /^CustodyError: .*not configured/);
  const seal = { ...unsigned({ address: SECOND, chainId: 7 }), revision: 5 };
  t.same(seal, {
    ownerAddress: SECOND,
    ownerChainId: 7,
    policyDigest: NOTHING,
    rulesDigest: NOTHING,
    revision: 5,
  });
  const moved = { ...wallet, ...seal, ...(await rewrapWallet(ring, wallet, wallet, seal)) };
  t.equal(await opens(moved), null);
  t.match(await opens({ ...moved, ...wallet, wrappedDataKey: moved.wrappedDataKey }), /not open/);
  const rotated = new KeyRing([masterKey("k1"), masterKey("k2")], "k2");
  const again = { ...wallet, ...(await rewrapWallet(rotated, wallet, wallet)) };
  t.equal(again.kid, "k2");
  t.equal(await opens(again), null);
  t.match(await refusalOf(() => new KeyRing([masterKey("k1")], "k9")), /"k9" is not configured/);
  t.same(ring.kids, ["k1", "k2"]);
});

const AUTHORIZATION: Authorization = {
  chainId: ARC.chainId,
  asset: ARC.usdc.address,
  from: WALLET,
  to: PAYEE,
  value: 5n,
  validAfter: 0n,
  validBefore: NOW,
  nonce: hash("7"),
};
const BY_POLICY: Cover = { kind: "policy" };

interface Checked {
  authorization?: Authorization;
  site?: PaidAt;
  isLoaded?: true;
  channel?: { agentId: string; order: ChannelOrder; site: string };
}

async function vaultWith({
  sealChanges,
  wallet,
  hasPaid = true,
  curve = {},
  channelKeys = [],
  cells,
}: {
  cells?: { self: string; cells: Cell[] };
  sealChanges?: SealChanges;
  wallet?: HeldWallet & { address: Address };
  hasPaid?: boolean;
  curve?: Partial<{ isPrivateKey: (bytes: Uint8Array) => boolean }>;
  channelKeys?: Uint8Array[];
} = {}) {
  const sealed: Sealed = wallet ?? (await held());
  const checked: Checked = {};
  const covers = {
    check: async (request: { authorization: Authorization }) => {
      checked.authorization = request.authorization;
      return sealed;
    },
    checkAllowance: async (request: { authorization: Authorization }) => {
      checked.authorization = request.authorization;
      return { wallet: sealed, value: 77n };
    },
    checkSite: async (at: PaidAt) => {
      checked.site = at;
      return sealed;
    },
    load: async () => {
      checked.isLoaded = true;
      return sealed;
    },
    checkChannel: async (agentId: string, order: ChannelOrder, site: string) => {
      checked.channel = { agentId, order, site };
      return sealed;
    },
    assertNewest: () => {
      throw new Error("an older seal");
    },
  } as unknown as Covers;
  const vault = new Vault({
    ring,
    curve: { addressOf, isPrivateKey, sign, ...curve },
    networks: [ARC],
    covers,
    channelKeys,
    cells,
    hasPaid: async () => hasPaid,
    sealChanges,
  });
  return { vault, checked };
}

t.test("a new wallet", async (t) => {
  const { vault } = await vaultWith();
  t.same(await vault.keyNames(), { active: "k1", kids: ["k1", "k2"] });
  const owner = { address: OWNER, chainId: 3 };
  const { address, sealed } = await vault.createWallet(AGENT, owner);
  const name = { agentId: AGENT, address, ...unsigned(owner) };
  await withPrivateKey(ring, name, sealed, (key) => t.equal(addressOf(key), address));
  const { vault: unlucky } = await vaultWith({ curve: { isPrivateKey: () => false } });
  t.match(await refusalOf(() => unlucky.createWallet(AGENT, owner)), /not a valid private key/);
});

t.test("with several cells, a new wallet's address names its own", async (t) => {
  const cells = readCells("c1=http://10.0.0.1,c2=http://10.0.0.2,c3=http://10.0.0.3@9999999999");
  const owner = { address: OWNER, chainId: 3 };
  for (let count = 0; count < 20; count += 1) {
    const { vault } = await vaultWith({ cells: { self: "c2", cells } });
    const { address, sealed } = await vault.createWallet(AGENT, owner);
    for (const end of [2_000_000_000n, 99_999_999_999n])
      t.equal(cellOfPayer(cells, address, end)?.id, "c2");
    const name = { agentId: AGENT, address, ...unsigned(owner) };
    await withPrivateKey(ring, name, sealed, (key) => t.equal(addressOf(key), address));
  }
  // A cell that nobody pays from any more still makes wallets.
  const left = readCells("c1=http://10.0.0.1,c2=http://10.0.0.2@0..5");
  const { vault } = await vaultWith({ cells: { self: "c2", cells: left } });
  t.match((await vault.createWallet(AGENT, owner)).address, /^0x/);
});

const policy = (
  rules: RulesInForce,
  more: Partial<Orders["AgentPolicy"]> = {},
): SignedOrderDocument<"AgentPolicy"> => {
  const order = {
    ...policyOrder({
      agentId: AGENT,
      walletAddress: WALLET,
      version: 4,
      name: "a",
      rules,
      nonce: hash("4"),
      deadlineSeconds: NOW,
    }),
    ...more,
  };
  const chainId = ARC.chainId;
  const digest = orderDigest("AgentPolicy", order, chainId, "readable");
  return { chainId, order, digest, signature: SIGNATURE };
};
const WIDER_THAN_SIGNED =
  "NotSignedFor: the rules of agent agt_1 would be wider than what was signed";

t.test("the first policy of a wallet", async (t) => {
  const { vault } = await vaultWith();
  const owner = { address: OWNER, chainId: 0 };
  const name = { agentId: AGENT, address: WALLET, ...unsigned(owner) };
  const wallet = {
    agentId: AGENT,
    address: WALLET,
    owner,
    sealed: await sealWallet(ring, name, PRIVATE_KEY),
  };
  const signed = policy(rulesOf());
  const { seal, sealed } = await vault.adopt(wallet, { signed, rules: NARROWER });
  t.same(seal, {
    ownerAddress: OWNER,
    ownerChainId: 0,
    policyDigest: signed.digest,
    rulesDigest: rulesDigest(NARROWER),
    revision: 1,
  });
  t.equal(await opens({ ...name, ...seal, ...sealed }), null);
  t.equal(await refusalOf(() => vault.adopt(wallet, { signed, rules: WIDER })), WIDER_THAN_SIGNED);
});

t.test("new rules of a wallet", async (t) => {
  const wallet = await held();
  const { vault } = await vaultWith();
  const signed = policy(WIDER);
  const current = rulesOf();
  const { seal, sealed } = await vault.reseal(wallet, { current, wanted: WIDER, signed });
  t.same(seal, {
    ownerAddress: OWNER,
    ownerChainId: 0,
    policyDigest: signed.digest,
    rulesDigest: rulesDigest(WIDER),
    revision: 5,
  });
  t.equal(await opens({ ...wallet, ...seal, ...sealed }), null);
  const paused = policy(rulesOf());
  t.equal(
    await refusalOf(() => vault.reseal(wallet, { current, wanted: WIDER, signed: paused })),
    WIDER_THAN_SIGNED,
  );
  const narrow = (of: Vault, wanted: RulesInForce, held = wallet) =>
    of.reseal(held, { current, wanted, signed: undefined });
  t.match((await narrow(vault, NARROWER)).seal, {
    policyDigest: wallet.policyDigest,
    rulesDigest: rulesDigest(NARROWER),
    revision: 5,
  });
  t.equal(
    await refusalOf(() => narrow(vault, WIDER)),
    "NotSignedFor: the rules of agent agt_1 would allow more than the owner signed",
  );
  const drifted = await held({ rulesDigest: hash("9") });
  t.equal(
    await refusalOf(() => narrow(vault, NARROWER, drifted)),
    "NotSignedFor: the rules of agent agt_1 differ from the sealed rules",
  );
  const sealChanges = { policy: async () => rulesOf() } as unknown as SealChanges;
  const { vault: careful } = await vaultWith({ sealChanges });
  t.equal(await refusalOf(() => narrow(careful, NARROWER)), "Error: an older seal");
  t.equal(
    await refusalOf(() => careful.reseal(wallet, { current, wanted: WIDER, signed })),
    WIDER_THAN_SIGNED,
    "what the owner signed is read again, whatever the caller hands in",
  );
});

t.test("another owner of a wallet", async (t) => {
  const wallet = await held();
  const moves: unknown[] = [];
  const sealChanges = {
    move: async (...args: unknown[]) => void moves.push(args),
  } as unknown as SealChanges;
  const { vault } = await vaultWith({ sealChanges });
  const to = { address: SECOND, chainId: 8 };
  const signed = {} as SignedMove;
  const current = rulesOf();
  const paused = rulesOf({ status: "paused" });
  const { seal, sealed } = await vault.reown(wallet, to, { current, wanted: paused, signed });
  t.same(seal, {
    ownerAddress: SECOND,
    ownerChainId: 8,
    policyDigest: NOTHING,
    rulesDigest: rulesDigest(paused),
    revision: 5,
  });
  t.equal(await opens({ ...wallet, ...seal, ...sealed }), null);
  t.same(moves, [[wallet, to, signed]]);
  const differ = "NotSignedFor: the rules of agent agt_1 differ from the sealed rules";
  for (const rules of [
    { current, wanted: WIDER, signed },
    { current: WIDER, wanted: NARROWER, signed },
  ])
    t.equal(await refusalOf(() => vault.reown(wallet, to, rules)), differ);
  const { vault: here } = await vaultWith();
  t.match(await here.reown(wallet, to, { current, wanted: current, signed }), { seal: {} });
});

t.test(
  "a payment is signed for our own token, from this wallet, with well-formed members",
  async (t) => {
    const { vault, checked } = await vaultWith();
    const pay = (more: Partial<Authorization> = {}) =>
      vault.signAuthorization(AGENT, { ...AUTHORIZATION, ...more }, BY_POLICY);
    const signature = await pay();
    const signer = await recoverTypedDataAddress({
      domain: {
        name: ARC.usdc.name,
        version: ARC.usdc.version,
        chainId: ARC.chainId,
        verifyingContract: ARC.usdc.address,
      },
      ...transferOf({
        from: WALLET,
        to: PAYEE,
        value: "5",
        validAfter: "0",
        validBefore: String(NOW),
        nonce: hash("7"),
      }),
      signature,
    });
    t.equal(signer.toLowerCase(), WALLET);
    t.same(checked.authorization, AUTHORIZATION);
    const shouting = (text: string) => text.toUpperCase().replace("0X", "0x");
    t.equal(
      await refusalOf(() =>
        pay({ asset: shouting(AUTHORIZATION.asset) as Address, from: shouting(WALLET) as Address }),
      ),
      null,
      "in capital letters",
    );
    const malformed = "CustodyError: the authorization has a malformed field, so it is not signed";
    const max = (1n << 256n) - 1n;
    const cases: [string, Partial<Authorization>, string | null][] = [
      ["another chain", { chainId: BASE_SEPOLIA.chainId }, "CustodyError: asset"],
      ["another token", { asset: PAYEE }, "CustodyError: asset"],
      ["another wallet", { from: PAYEE }, "CustodyError: agent agt_1 does not own the wallet"],
      ["a short payer", { from: "0x1" }, malformed],
      ["a long payer", { from: `${WALLET}0` }, malformed],
      ["text before the payer", { from: `a${WALLET}` as Address }, malformed],
      ["a short payee", { to: `0x${"1".repeat(39)}` }, malformed],
      ["a payee with other letters", { to: `0x${"g".repeat(40)}` }, malformed],
      ["a short nonce", { nonce: `0x${"1".repeat(63)}` }, malformed],
      ["a long nonce", { nonce: `0x${"1".repeat(65)}` }, malformed],
      ["another kind of nonce", { nonce: `eip2612:${hash("1")}` }, malformed],
      ["the greatest amount", { value: max }, null],
      ["no amount", { value: 0n }, null],
      ["a negative amount", { value: -1n }, malformed],
      ["too large an amount", { value: max + 1n }, malformed],
      ["a negative start", { validAfter: -1n }, malformed],
      ["too late an end", { validBefore: max + 1n }, malformed],
    ];
    for (const [what, more, expected] of cases) {
      const refusal = await refusalOf(() => pay(more));
      if (expected === null) t.equal(refusal, null, what);
      else t.match(refusal, expected, what);
    }
    const elsewhere = await held();
    elsewhere.address = SECOND;
    const moved = { ...elsewhere, ...(await sealWallet(ring, elsewhere, PRIVATE_KEY)) };
    const { vault: other } = await vaultWith({ wallet: moved });
    t.match(
      await refusalOf(() =>
        other.signAuthorization(AGENT, { ...AUTHORIZATION, from: SECOND }, BY_POLICY),
      ),
      "CustodyError: the key of agent agt_1 belongs to another address",
    );
  },
);

t.test("an authorization with a maximum is covered with its maximum", async (t) => {
  const { vault, checked } = await vaultWith();
  const upto: Authorization = {
    ...AUTHORIZATION,
    nonce: `permit2:${hash("7")}`,
    terms: { scheme: "upto", maximum: "9", facilitator: SECOND },
  };
  await vault.signAuthorization(AGENT, upto, BY_POLICY);
  t.equal(checked.authorization?.value, 9n);
  const allowance = { value: 1_000n, count: 0n, deadline: NOW };
  const signed = await vault.signAllowance(
    AGENT,
    { authorization: upto, cover: BY_POLICY },
    allowance,
  );
  t.equal(checked.authorization?.value, 9n);
  t.match(signed, { value: 77n, to: SPENDER.toLowerCase() }, "as custody allows, not as requested");
});

t.test("an allowance, and its revocation", async (t) => {
  const { vault } = await vaultWith();
  const wanted = { value: 1_000n, count: 0n, deadline: NOW };
  const allow = (more: Partial<Authorization> = {}) =>
    vault.signAllowance(
      AGENT,
      {
        authorization: {
          ...AUTHORIZATION,
          nonce: `permit2:${hash("7")}`,
          terms: { scheme: "exact-permit2" },
          ...more,
        },
        cover: BY_POLICY,
      },
      wanted,
    );
  t.match(await allow(), { value: 77n, from: WALLET });
  t.match(await refusalOf(() => allow({ terms: null })), /needs no allowance/);
  t.match(await refusalOf(() => allow({ from: PAYEE })), /does not own/);
  t.match(await refusalOf(() => allow({ from: "0x1" })), /malformed/);
  t.match(await refusalOf(() => allow({ asset: PAYEE })), /not configured/);
  const revoke = (spender: Address, asset = ARC.usdc.address) =>
    vault.signRevocation(
      AGENT,
      { chainId: ARC.chainId, asset },
      { spender, count: 1n, deadline: NOW },
    );
  t.match(await revoke(SPENDER), { value: 0n, from: WALLET });
  t.match(await revoke(SPENDER.toLowerCase() as Address), { value: 0n });
  t.match(await refusalOf(() => revoke(PAYEE)), /never had an allowance/);
  t.match(await refusalOf(() => revoke(EXACT_PROXY.address)), /never had an allowance/);
  t.match(await refusalOf(() => revoke(SPENDER, PAYEE)), /not configured/);
});

t.test("a cancellation", async (t) => {
  const { vault } = await vaultWith();
  const key = { chainId: ARC.chainId, asset: ARC.usdc.address, nonce: hash("7") };
  t.match(await vault.signCancel(AGENT, key), /^0x[0-9a-f]{130}$/);
  const terms = { scheme: "exact-permit2" } as const;
  t.match(
    await refusalOf(() =>
      vault.signCancel(AGENT, { ...key, nonce: `permit2:${hash("7")}`, terms }),
    ),
    /no cancellation/,
  );
  t.match(await refusalOf(() => vault.signCancel(AGENT, { ...key, chainId: 1 })), /not configured/);
});

/** Both wallets' signatures, and what the database returns. */
class Signed {
  readonly valid = new Set<string>();
  readonly asked: string[] = [];
  isAvailable = true;
  now = NOW;
  sealed: SignedOrderDocument<"AgentPolicy"> | undefined;
  naming: Orders["SecondWallet"] = {
    owner: OWNER,
    second: SECOND,
    secondChain: "8",
    nonce: hash("3"),
    deadline: "9",
  };
  hasNamed = true;
  namedDigest: Hex | undefined;
  changes = new SealChanges({
    isSigned: async ({ address, chainId }, { hash, signature }) => {
      const about = `${address}|${chainId}|${hash}|${signature}`;
      this.asked.push(about);
      if (!this.isAvailable) return "unavailable";
      return this.valid.has(about) ? "valid" : "invalid";
    },
    findPolicy: async () => this.sealed && { ...this.sealed, document: this.sealed.order },
    findSecond: async () => {
      if (!this.hasNamed) return undefined;
      const digest =
        this.namedDigest ?? orderDigest("SecondWallet", this.naming, ARC.chainId, "readable");
      return { document: this.naming, digest, signature: SIGNATURE, chainId: ARC.chainId };
    },
    nowSeconds: () => this.now,
  });

  by(owner: Address, chainId: number, digest: Hex, signature: Hex = SIGNATURE): void {
    this.valid.add(`${owner}|${chainId}|${digest}|${signature}`);
  }
}

t.test("custody reads again what its owner signed", async (t) => {
  interface Case {
    what: string;
    expected?: string | null;
    signed?: SignedOrderDocument<"AgentPolicy">;
    wallet?: Partial<WalletName>;
    change?: (signed: Signed) => void;
  }
  const before = policy(rulesOf(), { version: "3" });
  const later = policy(WIDER);
  const failed = (what: string) => `NotSignedFor: agent agt_1: ${what}`;
  const NOT_NEWER = failed("the new policy is not newer than the one in force");
  const MISSING = failed("the sealed policy is missing");
  const ANOTHERS = failed("the new policy is another agent's");
  const cases: Case[] = [
    { what: "a newer one", expected: null },
    { what: "the first one", expected: null, wallet: { policyDigest: NOTHING } },
    { what: "the same version", expected: NOT_NEWER, signed: policy(WIDER, { version: "3" }) },
    { what: "an older version", expected: NOT_NEWER, signed: policy(WIDER, { version: "2" }) },
    {
      what: "version 0",
      expected: NOT_NEWER,
      wallet: { policyDigest: NOTHING },
      signed: policy(WIDER, { version: "0" }),
    },
    { what: "another agent's", expected: ANOTHERS, signed: policy(WIDER, { agent: "agt_2" }) },
    { what: "another wallet's", expected: ANOTHERS, signed: policy(WIDER, { wallet: SECOND }) },
    {
      what: "another digest",
      expected: failed("the order does not have its digest"),
      signed: { ...later, digest: hash("9") },
    },
    {
      what: "malformed",
      expected: failed("the order does not have its digest"),
      signed: { ...later, order: { ...later.order, dailyLimit: "-1" } },
    },
    {
      what: "no policy before it",
      expected: MISSING,
      change: (signed) => (signed.sealed = undefined),
    },
    {
      what: "another policy before it",
      expected: MISSING,
      change: (signed) => (signed.sealed = later),
    },
    {
      what: "a malformed policy before it",
      expected: MISSING,
      change: (signed) =>
        (signed.sealed = { ...before, order: { ...before.order, dailyLimit: "-1" } }),
    },
    { what: "just in time", expected: null, change: (signed) => (signed.now = NOW + 60n) },
    {
      what: "too late",
      expected: "signature_expired",
      change: (signed) => (signed.now = NOW + 61n),
    },
    {
      what: "not signed",
      expected: failed("its owner did not sign this order"),
      change: (signed) => signed.valid.clear(),
    },
    {
      what: "of another owner",
      expected: failed("its owner did not sign this order"),
      wallet: { ownerAddress: SECOND },
    },
    {
      what: "of a contract",
      expected: failed("its owner did not sign this order"),
      wallet: { ownerChainId: 8 },
    },
    {
      what: "an owner who cannot be asked",
      expected: "chain_unavailable",
      change: (signed) => (signed.isAvailable = false),
    },
  ];
  for (const { what, expected = null, signed = later, wallet, change } of cases) {
    const world = new Signed();
    world.sealed = before;
    world.by(OWNER, 0, signed.digest);
    change?.(world);
    const name = { ...(await held()), policyDigest: before.digest, ...wallet };
    t.equal(await refusalOf(() => world.changes.policy(name, signed)), expected, what);
    if (expected === null)
      t.equal((await world.changes.policy(name, signed)).dailyLimitAtomic, 101n, what);
    if (expected === null) t.equal(world.asked.length, 1, "a valid signature is asked for once");
  }
});

t.test("custody reads again that both wallets signed a move", async (t) => {
  const order: Orders["MoveOwner"] = {
    from: OWNER,
    to: SECOND,
    nonce: hash("2"),
    deadline: String(NOW),
  };
  const moveOf = (more: Partial<Orders["MoveOwner"]> = {}): SignedMove => {
    const moved = { ...order, ...more };
    const digest = orderDigest("MoveOwner", moved, ARC.chainId, "readable");
    return {
      chainId: ARC.chainId,
      order: moved,
      digest,
      signature: SIGNATURE,
      secondSignature: SECOND_SIGNATURE,
    };
  };
  const failed = (what: string) => `NotSignedFor: agent agt_1: ${what}`;
  const BETWEEN = failed("the move is between other wallets");
  const NAMED = failed("its owner named another second wallet");
  const UNSIGNED = failed("its owner did not sign this order");
  const namingDigest = (world: Signed) =>
    orderDigest("SecondWallet", world.naming, ARC.chainId, "readable");
  interface Case {
    what: string;
    expected: string | null;
    signed?: SignedMove;
    change?: (world: Signed, signed: SignedMove) => void;
  }
  const cases: Case[] = [
    { what: "as both signed", expected: null },
    { what: "from another wallet", expected: BETWEEN, signed: moveOf({ from: PAYEE }) },
    { what: "to another wallet", expected: BETWEEN, signed: moveOf({ to: PAYEE }) },
    {
      what: "another digest",
      expected: failed("the order does not have its digest"),
      signed: { ...moveOf(), digest: hash("9") },
    },
    { what: "none was named", expected: NAMED, change: (world) => (world.hasNamed = false) },
    {
      what: "another one was named",
      expected: NAMED,
      change: (world) => (world.naming = { ...world.naming, second: PAYEE }),
    },
    {
      what: "named on another chain",
      expected: NAMED,
      change: (world) => (world.naming = { ...world.naming, secondChain: "9" }),
    },
    {
      what: "named by another owner",
      expected: NAMED,
      change: (world) => (world.naming = { ...world.naming, owner: PAYEE }),
    },
    {
      what: "a malformed order of naming",
      expected: NAMED,
      change: (world) =>
        (world.namedDigest = namingDigest(world)) &&
        (world.naming = { ...world.naming, secondChain: "-1" }),
    },
    {
      what: "an altered order of naming",
      expected: NAMED,
      change: (world) => (world.namedDigest = hash("9")),
    },
    {
      what: "the naming is not signed",
      expected: UNSIGNED,
      change: (world) => world.valid.delete(`${OWNER}|0|${namingDigest(world)}|${SIGNATURE}`),
    },
    {
      what: "the owner did not sign",
      expected: UNSIGNED,
      change: (world, { digest }) => world.valid.delete(`${OWNER}|0|${digest}|${SIGNATURE}`),
    },
    {
      what: "the second wallet did not sign",
      expected: UNSIGNED,
      change: (world, { digest }) =>
        world.valid.delete(`${SECOND}|8|${digest}|${SECOND_SIGNATURE}`),
    },
    { what: "just in time", expected: null, change: (world) => (world.now = NOW + 60n) },
    { what: "too late", expected: "signature_expired", change: (world) => (world.now = NOW + 61n) },
  ];
  for (const { what, expected, signed = moveOf(), change } of cases) {
    const world = new Signed();
    world.by(OWNER, 0, signed.digest);
    world.by(SECOND, 8, signed.digest, SECOND_SIGNATURE);
    world.by(OWNER, 0, namingDigest(world));
    change?.(world, signed);
    if (what.startsWith("named")) world.by(OWNER, 0, namingDigest(world));
    const to = { address: SECOND, chainId: 8 };
    const wallet = await held();
    t.equal(await refusalOf(() => world.changes.move(wallet, to, signed)), expected, what);
  }
});

/** A KMS in memory: what it encrypted for one key and context opens only with both. */
class MemoryKms {
  readonly calls: string[] = [];
  /** The plaintexts that it was given, by reference. */
  readonly given: Uint8Array[] = [];
  failure: Error | undefined;

  async encrypt(keyId: string, plain: Uint8Array, context: KmsContext): Promise<Uint8Array> {
    this.#called("encrypt");
    this.given.push(plain);
    const text = Buffer.from(plain).toString("hex");
    return Buffer.from(JSON.stringify([keyId, context, text]));
  }

  async decrypt(keyId: string, box: Uint8Array, context: KmsContext): Promise<Uint8Array> {
    this.#called("decrypt");
    return Buffer.from(this.#open(keyId, box, context), "hex");
  }

  async reEncrypt(
    box: Uint8Array,
    from: { keyId: string; context: KmsContext },
    to: { keyId: string; context: KmsContext },
  ): Promise<Uint8Array> {
    this.#called("reEncrypt");
    const text = this.#open(from.keyId, box, from.context);
    return Buffer.from(JSON.stringify([to.keyId, to.context, text]));
  }

  async close(): Promise<void> {
    this.#called("close");
  }

  #called(what: string): void {
    this.calls.push(what);
    if (this.failure) throw this.failure;
  }

  #open(keyId: string, box: Uint8Array, context: KmsContext): string {
    const [ownId, ownContext, text] = JSON.parse(Buffer.from(box).toString()) as [
      string,
      KmsContext,
      string,
    ];
    if (ownId !== keyId || JSON.stringify(ownContext) !== JSON.stringify(context))
      throw new KmsAltered("altered");
    return text;
  }
}

const KEYS = [masterKey("k1"), { kid: "m1", kmsKeyId: "id-1" }, { kid: "m2", kmsKeyId: "id-2" }];
const isCleared = (bytes: Uint8Array | undefined): boolean =>
  bytes !== undefined && bytes.every((byte) => byte === 0);

t.test("a master key in a KMS", async (t) => {
  const kms = new MemoryKms();
  const ringOf = (active: string, cacheMs = 0) =>
    new KeyRing(KEYS, active, { kms: kms as unknown as Kms, cacheMs });
  const calls = () => kms.calls.splice(0).join();
  const remote = ringOf("m1");
  const name = await held();
  const wallet = { ...name, ...(await sealWallet(remote, name, PRIVATE_KEY)) };
  t.equal(wallet.kid, "m1");
  t.ok(isCleared(kms.given[0]), "the data key is overwritten");
  t.match(JSON.parse(Buffer.from(wallet.wrappedDataKey).toString()), [
    "id-1",
    { "purser:of": AGENT, "purser:seal": /^[0-9a-f]{64}$/ },
  ]);
  t.equal(calls(), "encrypt");
  t.equal(await opens(wallet, remote), null);
  t.equal(await opens(wallet, remote), null);
  t.equal(calls(), "decrypt,decrypt", "nothing is cached");
  t.match(await opens({ ...wallet, revision: 5 }, remote), /^NotSignedFor: .* does not open/);
  kms.failure = new Error("unreachable");
  t.equal(await opens(wallet, remote), "Error: unreachable", "an outage is no forgery");
  t.equal(await refusalOf(() => rewrapWallet(ringOf("m2"), wallet, wallet)), "Error: unreachable");
  kms.failure = undefined;
  calls();

  const other = ringOf("m2");
  const moved = { ...wallet, ...(await rewrapWallet(other, wallet, wallet)) };
  t.equal(moved.kid, "m2");
  t.equal(calls(), "reEncrypt", "the data key stays in the KMS");
  t.equal(await opens(moved, remote), null);
  t.match(
    await refusalOf(() => rewrapWallet(other, { ...wallet, revision: 5 }, wallet)),
    /^NotSignedFor: .* does not open/,
  );
  calls();
  const local = { ...wallet, ...(await rewrapWallet(ringOf("k1"), wallet, wallet)) };
  t.equal(calls(), "decrypt", "to a key of this process");
  t.equal(await opens(local), null);
  const given = kms.given.length;
  const again = { ...local, ...(await rewrapWallet(remote, local, local)) };
  t.equal(calls(), "encrypt", "and back");
  t.equal(await opens(again, remote), null);
  t.ok(isCleared(kms.given[given]), "the data key is overwritten");

  calls();
  await ringOf("k1").check();
  t.equal(calls(), "", "a key of this process is there");
  await remote.check();
  t.equal(calls(), "encrypt,decrypt");
  kms.failure = new Error("unreachable");
  await t.rejects(remote.check(), /unreachable/);
});

t.test("a data key that a KMS unwrapped is cached for a while", async (t) => {
  const kms = new MemoryKms();
  const ringOf = (cacheMs: number) =>
    new KeyRing(KEYS, "m1", { kms: kms as unknown as Kms, cacheMs });
  const decrypts = () => kms.calls.splice(0).filter((call) => call === "decrypt").length;
  const name = await held();
  const keeping = ringOf(60_000);
  const wallet = { ...name, ...(await sealWallet(keeping, name, PRIVATE_KEY)) };
  for (let times = 0; times < 3; times += 1) t.equal(await opens(wallet, keeping), null);
  t.equal(decrypts(), 1);
  t.match(await opens({ ...wallet, revision: 5 }, keeping), /does not open/, "another seal");
  t.match(await opens({ ...wallet, revision: 5 }, keeping), /does not open/);
  t.equal(decrypts(), 2, "a failure is not cached");
  await keeping.close();
  t.same(kms.calls.splice(0), ["close"]);
  t.equal(await opens(wallet, keeping), null);
  t.equal(decrypts(), 1, "nothing is left after the end");
  await keeping.close();
  const brief = ringOf(1);
  t.equal(await opens(wallet, brief), null);
  decrypts();
  await until(async () => (await opens(wallet, brief)) === null && decrypts() > 0);
});

t.test("a private key is overwritten after its use", async (t) => {
  const wallet = await held();
  let key: Uint8Array | undefined;
  await withPrivateKey(ring, wallet, wallet, (privateKey) => void (key = privateKey));
  t.ok(isCleared(key));
  const { vault } = await vaultWith({
    curve: {
      isPrivateKey: (bytes) => {
        key = bytes;
        return true;
      },
    },
  });
  await vault.createWallet(AGENT, { address: OWNER, chainId: 0 });
  t.ok(isCleared(key));
});

t.test("small secrets of the service", async (t) => {
  const { vault } = await vaultWith();
  const box = await vault.seal("webhook:1", Buffer.from("secret"));
  t.equal(Buffer.from(await vault.open("webhook:1", box)).toString(), "secret");
  t.match(await refusalOf(() => vault.open("webhook:2", box)), /does not open as "webhook:2"/);
});

t.test("signing in at a site that was paid", async (t) => {
  const challenge = {
    info: {
      domain: "shop.example",
      uri: "https://shop.example/x",
      version: "1",
      nonce: "0123456789abcdef",
      issuedAt: new Date().toISOString(),
    },
    supportedChains: [{ chainId: ARC.id, type: "eip191" }],
  };
  const letters: Address = `0x${"A".repeat(40)}`;
  const asks = (vault: Vault, more: object = {}) =>
    vault.signIn({
      agentId: AGENT,
      url: "https://shop.example/x",
      payee: letters,
      challenge,
      ...more,
    });
  const { vault, checked } = await vaultWith();
  const payload = await asks(vault);
  t.match(payload, { domain: "shop.example", signature: /^0x[0-9a-f]{130}$/ });
  t.equal(payload?.address.toLowerCase(), WALLET);
  if (!payload) throw new Error("nothing was signed");
  t.match(await verifySIWxSignature(payload), { isValid: true });
  t.same(checked.site, {
    agentId: AGENT,
    payee: letters.toLowerCase(),
    site: "https://shop.example",
  });
  t.equal(await asks(vault, { challenge: {} }), undefined, "it asks for something else");
  const { vault: unpaid } = await vaultWith({ hasPaid: false });
  t.equal(await asks(unpaid), undefined, "it was not paid");
});

t.test("an error of custody has its name", async (t) => {
  t.equal(new CustodyError("").name, "CustodyError");
});

// Payment channels.

const CHANNEL_KEYS = [Buffer.alloc(32, 7), Buffer.alloc(32, 8)];
const [CHANNEL_SIGNER, OLD_SIGNER] = CHANNEL_KEYS.map((key) => addressOf(key)) as [
  Address,
  Address,
];
const channelOrder = (
  more: Partial<ChannelOrder> = {},
  config: Partial<ChannelOrder["config"]> = {},
): ChannelOrder => ({
  chainId: ARC.chainId,
  config: {
    payer: WALLET,
    payerAuthorizer: CHANNEL_SIGNER,
    receiver: PAYEE,
    receiverAuthorizer: SECOND,
    token: ARC.usdc.address,
    withdrawDelay: 900,
    salt: hash("6"),
    ...config,
  },
  ceiling: 500n,
  ...more,
});
const channelDeposit = { amount: 9n, validBefore: NOW, salt: hash("6") };

t.test("a voucher is signed by the channel's key, and its deposit by the wallet's", async (t) => {
  const signing = async (order: ChannelOrder, site = "https://a.example") => {
    const { vault, checked } = await vaultWith({ channelKeys: CHANNEL_KEYS });
    return { signed: await vault.signVoucher(AGENT, order, site), checked };
  };
  const refused = (order: ChannelOrder) => refusalOf(() => signing(order));
  const first = channelOrder();
  const { signed, checked } = await signing(first);
  t.equal(ownVoucher(first, { ceiling: 500n, voucher: signed.voucher }), signed.voucher);
  t.equal(signed.deposit, null);
  t.same(checked, { channel: { agentId: AGENT, order: first, site: "https://a.example" } });

  const deposited = channelOrder({ deposit: channelDeposit });
  const both = await signing(deposited);
  const authorization = depositOf(deposited);
  if (!authorization) throw new Error("no deposit");
  t.equal(both.signed.deposit, sign(depositDigestOf(ARC, authorization), PRIVATE_KEY));
  t.equal(both.signed.voucher, signed.voucher);

  const old = channelOrder({}, { payerAuthorizer: OLD_SIGNER });
  t.equal(ownVoucher(old, { ceiling: 500n, ...(await signing(old)).signed }) !== undefined, true);
  t.match(
    await refused(channelOrder({}, { payerAuthorizer: SECOND })),
    /^CustodyError: CHANNEL_KEYS has no key/,
  );
  t.match(
    await refused(channelOrder({}, { payer: SECOND })),
    /^CustodyError: the channel is not of the wallet/,
  );
  t.match(await refused(channelOrder({ chainId: 1 })), /^CustodyError/);
  t.match(await refused(channelOrder({}, { token: SECOND })), /^CustodyError/);

  // What was signed before is the evidence of how far the ceiling grows.
  const before = { ceiling: 500n, voucher: signed.voucher };
  const more = await signing(channelOrder({ ceiling: 501n, before }));
  t.ok(more.checked.channel, "more is a payment");
  for (const ceiling of [500n, 499n]) {
    const noMore = await signing(channelOrder({ ceiling, before }));
    t.same(noMore.checked, { isLoaded: true }, "no more needs no cover");
    t.match(
      await refused(channelOrder({ ceiling, before }, { payer: SECOND })),
      /not of the wallet/,
    );
  }
  const again = await signing(channelOrder({ before, deposit: channelDeposit }));
  t.ok(again.checked.channel, "a deposit is covered, whatever the ceiling");
  for (const forged of [
    { ...before, ceiling: 501n },
    { ...before, voucher: sign(voucherDigestOf(first), PRIVATE_KEY) },
  ])
    t.match(
      await refused(channelOrder({ ceiling: 501n, before: forged })),
      /^NotSignedFor: .* is not of this channel/,
    );
});

t.test(
  "an account of channels signs only what returns money, and what uses up its own nonce",
  async (t) => {
    const { vault } = await vaultWith({ channelKeys: CHANNEL_KEYS });
    t.same(await vault.channelSigners(), [CHANNEL_SIGNER, OLD_SIGNER]);
    t.same(await (await vaultWith()).vault.channelSigners(), []);
    const { config } = channelOrder();
    const [begin, finish, deposit] = [
      encodeFunctionData({
        abi: CHANNELS_ABI,
        functionName: "initiateWithdraw",
        args: [config, 5n],
      }),
      encodeFunctionData({ abi: CHANNELS_ABI, functionName: "finalizeWithdraw", args: [config] }),
      encodeFunctionData({
        abi: CHANNELS_ABI,
        functionName: "settle",
        args: [PAYEE, ARC.usdc.address],
      }),
    ];
    const transaction = (more: Partial<PlainTransaction> = {}): PlainTransaction => ({
      chainId: ARC.chainId,
      nonce: 1,
      to: CHANNELS,
      value: 0n,
      data: begin,
      gas: 100_000n,
      maxFeePerGas: 2n,
      maxPriorityFeePerGas: 1n,
      ...more,
    });
    const withdraw = (more: Partial<PlainTransaction>, signer = CHANNEL_SIGNER) =>
      vault.signWithdrawal(signer, transaction(more));
    const signature = await withdraw({});
    const raw = serializeTransaction(
      { ...transaction(), type: "eip1559" },
      parseSignature(signature),
    );
    t.equal(
      (await recoverTransactionAddress({ serializedTransaction: raw })).toLowerCase(),
      CHANNEL_SIGNER,
    );
    t.ok(await withdraw({ data: finish }));
    t.ok(await withdraw({}, OLD_SIGNER));
    t.ok(await withdraw({ to: CHANNELS.toLowerCase() as Address }));
    const own = getAddress(CHANNEL_SIGNER);
    t.ok(await withdraw({ to: own, data: "0x" }));
    const refused: Partial<PlainTransaction>[] = [
      { data: deposit },
      { data: "0x" },
      { to: PAYEE },
      { to: PAYEE, data: "0x" },
      { to: own },
      { value: 1n },
      { to: own, data: "0x", value: 1n },
    ];
    for (const more of refused)
      t.match(
        await refusalOf(() => withdraw(more)),
        /^CustodyError: an account of channels signs only/,
      );
    t.match(await refusalOf(() => withdraw({}, WALLET)), /^CustodyError: CHANNEL_KEYS has no key/);
  },
);
