// Goal: custody signs nothing when a single member of the wallet, its documents, its rows or the payment is not what its
// owner signed; and signs when all of them are.
import t from "tap";
import type { Address, Hex } from "viem";
import { newestVersion } from "../../packages/rules/src/policy.ts";
import type { Authorization } from "../../server/core/authorization.ts";
import {
  approvalOrder,
  orderDigest,
  policyOrder,
  type Orders,
  type OrderKind,
} from "../../server/core/orders.ts";
import { rulesDigest, type Payee, type RulesInForce } from "../../server/core/rules.ts";
import { columnsText, payeeText } from "../../server/plugins/custody/columns.ts";
import {
  Covers,
  type Cover,
  type CoversDeps,
  type Evidence,
  type LoadedWallet,
  type PaidAt,
  type SignedDocument,
  type WithdrawalRow,
} from "../../server/plugins/custody/covers.ts";
import { NOTHING } from "../../server/plugins/custody/envelope.ts";
import type { ChannelOrder } from "../../server/schemes/batch-settlement/paying.ts";

const CHAIN_ID = 5_042_002;
const OTHER_CHAIN = 84_532;
const AGENT = "agt_1";
const address = (digit: string): Address => `0x${digit.repeat(40)}`;
const hash = (digit: string): Hex => `0x${digit.repeat(64)}`;
const WALLET = address("a");
const OWNER = address("b");
const SECOND = address("c");
const PAYEE = address("1");
const AT_SITE = address("2");
const UNLISTED = address("3");
const ASSET = address("d");
const SITE = "https://shop.example";
const OTHER_SITE = "https://other.example";
const NOW = 1_800_000_000n;
const SIGNATURE: Hex = `0x${"11".repeat(65)}`;

const payee = (at: Partial<Payee>): Payee => ({
  address: PAYEE,
  label: "",
  site: "",
  dailyLimitAtomic: null,
  perPaymentLimitAtomic: null,
  expiresAtSeconds: null,
  ...at,
});
const rulesOf = (more: Partial<RulesInForce> = {}): RulesInForce => ({
  dailyLimitAtomic: 1_000n,
  weeklyLimitAtomic: 800n,
  monthlyLimitAtomic: 5_000n,
  perPaymentLimitAtomic: 500n,
  paymentsPerHour: 50n,
  fetch: "any",
  expiresAtSeconds: NOW + 1_000n,
  status: "active",
  payees: [payee({ address: PAYEE }), payee({ address: AT_SITE, site: SITE })],
  ...more,
});

/** Everything that custody reads, as the service wrote it for an owner who signed. */
class World {
  rules = rulesOf();
  signedRules = this.rules;
  chainId = CHAIN_ID;
  loaded: Partial<LoadedWallet> = {};
  /** Of the loaded wallet alone: what a cached policy is compared with. */
  evidence: Partial<Evidence> = {};
  policy: Partial<SignedDocument> = {};
  order: Partial<Orders["AgentPolicy"]> = {};
  hasWallet = true;
  hasEvidence = true;
  reads = { loads: 0, evidence: 0 };
  loads: (Partial<LoadedWallet> | undefined)[] = [];
  paidAt: PaidAt | undefined;
  withdrawal: WithdrawalRow | undefined;
  second: SignedDocument | undefined;
  approval: SignedDocument | undefined;
  asked: [PaidAt["agentId"], string][] = [];
  verdicts = new Map<string, "valid" | "unavailable">();
  readonly #deps: CoversDeps = {
    load: async (paidAt) => {
      this.paidAt = paidAt;
      this.reads.loads += 1;
      const next = this.loads.shift();
      return this.hasWallet ? { ...this.wallet(paidAt), ...next } : undefined;
    },
    loadEvidence: async (paidAt) => {
      this.reads.evidence += 1;
      return this.hasEvidence ? this.evidenceAt(paidAt) : undefined;
    },
    findWithdrawal: async (agentId, nonce) => {
      this.asked.push([agentId, nonce]);
      return this.withdrawal;
    },
    findSecond: async () => this.second,
    findPayouts: async () => [],
    findApproval: async (agentId, id) => {
      this.asked.push([agentId, id]);
      return this.approval;
    },
    isSigned: async ({ address, chainId }, { hash }) =>
      this.verdicts.get(`${address}|${chainId}|${hash}`) ?? "invalid",
  };
  covers = new Covers(this.#deps);

  keepsAtMost(most: { policies: number; payees: number }): void {
    this.covers = new Covers(this.#deps, most);
  }

  signedBy(owner: Address, digest: Hex, chainId = 0): void {
    this.verdicts.set(`${owner}|${chainId}|${digest}`, "valid");
  }

  document(): SignedDocument {
    const order = {
      ...policyOrder({
        agentId: AGENT,
        walletAddress: WALLET,
        version: 3,
        name: "a",
        rules: this.signedRules,
        nonce: hash("5"),
        deadlineSeconds: 99n,
      }),
      ...this.order,
    };
    const digest = orderDigest("AgentPolicy", order, this.chainId, "readable");
    return { document: order, digest, signature: SIGNATURE, chainId: this.chainId, ...this.policy };
  }

  wallet({ payee, site }: Pick<PaidAt, "payee" | "site">): LoadedWallet {
    const { digest } = this.document();
    const at = (where: string) =>
      this.rules.payees.find((one) => one.address === payee && one.site === where);
    const listed = at(site) ?? at("");
    return {
      agentId: AGENT,
      address: WALLET,
      ownerAddress: OWNER,
      ownerChainId: 0,
      policyDigest: digest,
      rulesDigest: rulesDigest(this.rules),
      revision: 4,
      kid: "k",
      wrappedDataKey: new Uint8Array(),
      ciphertext: new Uint8Array(),
      columns: columnsText(`eip155:${this.chainId}`, this.rules),
      payeeColumns: listed ? payeeText(listed) : null,
      rulesVersion: 1,
      latestVersion: 3,
      isHeld: false,
      nowSeconds: NOW,
      ...this.loaded,
    };
  }

  evidenceAt(paidAt: PaidAt): Evidence {
    return { ...this.wallet(paidAt), rules: this.rules, policy: this.document(), ...this.evidence };
  }
}

function signedWorld(change: (world: World) => void = () => undefined): World {
  const world = new World();
  change(world);
  const { policyDigest } = world.loaded;
  world.signedBy(OWNER, policyDigest ?? world.document().digest);
  return world;
}

const payment = (more: Partial<Authorization> = {}): Authorization => ({
  chainId: CHAIN_ID,
  asset: ASSET,
  from: WALLET,
  to: PAYEE,
  value: 500n,
  validAfter: 0n,
  validBefore: NOW + 60n,
  nonce: hash("7"),
  ...more,
});

const NOT_SIGNED = "NotSignedFor";
const CHANGED = "service_unavailable";

/** The class of a custody error, or the code of an error for the caller. */
async function refusalOf(work: () => Promise<unknown>): Promise<string | null> {
  try {
    await work();
    return null;
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    const { code } = error as { code?: string };
    return code ?? `${error.constructor.name}: ${error.message}`;
  }
}

type Case = [
  what: string,
  change: (world: World) => void,
  expected: string | null,
  paid?: { authorization?: Partial<Authorization>; cover?: Cover },
];
const BY_POLICY: Cover = { kind: "policy" };

const POLICY_CASES: Case[] = [
  ["what the owner signed", () => undefined, null],
  [
    "a payee in capital letters",
    () => undefined,
    null,
    { authorization: { to: `0x${"1".repeat(40)}` } },
  ],
  ["no wallet", (world) => (world.hasWallet = false), "CustodyError: agent agt_1 has no wallet"],
  [
    "no evidence",
    (world) => (world.hasEvidence = false),
    "CustodyError: agent agt_1 has no wallet",
  ],
  [
    "rules of a newer release",
    (world) => (world.loaded = { rulesVersion: newestVersion() + 1 }),
    "policy_version_unknown",
  ],
  [
    "another limit in the columns",
    (world) =>
      (world.loaded = {
        columns: columnsText(`eip155:${CHAIN_ID}`, rulesOf({ dailyLimitAtomic: 999n })),
      }),
    `${NOT_SIGNED}: agent agt_1: its columns are not what was sealed`,
  ],
  [
    "another network in the columns",
    (world) => (world.loaded = { columns: columnsText("eip155:1", rulesOf()) }),
    `${NOT_SIGNED}: agent agt_1: its columns are not what was sealed`,
  ],
  [
    "no row of the payee",
    (world) => (world.loaded = { payeeColumns: null }),
    `${NOT_SIGNED}: agent agt_1: the row of its payee is not what was sealed`,
  ],
  [
    "a row of a payee who is not sealed",
    (world) => (world.loaded = { payeeColumns: payeeText(payee({})) }),
    `${NOT_SIGNED}: agent agt_1: the row of its payee is not what was sealed`,
    { authorization: { to: UNLISTED } },
  ],
  [
    "an older policy",
    (world) => (world.loaded = { latestVersion: 4 }),
    `${NOT_SIGNED}: agent agt_1: its policy is not the latest one`,
  ],
  [
    "no latest version",
    (world) => (world.loaded = { latestVersion: null }),
    `${NOT_SIGNED}: agent agt_1: its policy is not the latest one`,
  ],
  [
    "no policy",
    (world) => (world.evidence = { policy: null }),
    `${NOT_SIGNED}: agent agt_1: the sealed policy is missing`,
  ],
  [
    "another policy than sealed",
    (world) => (world.evidence = { policyDigest: hash("9") }),
    `${NOT_SIGNED}: agent agt_1: the sealed policy is missing`,
  ],
  [
    "a changed document",
    (world) =>
      (world.policy = { document: { ...(world.document().document as object), dailyLimit: "9" } }),
    `${NOT_SIGNED}: agent agt_1: its owner did not sign its policy`,
  ],
  [
    "a malformed document",
    (world) =>
      (world.policy = { document: { ...(world.document().document as object), dailyLimit: "-9" } }),
    `${NOT_SIGNED}: agent agt_1: its owner did not sign its policy`,
  ],
  [
    "a document of another chain",
    (world) => (world.policy = { chainId: OTHER_CHAIN }),
    `${NOT_SIGNED}: agent agt_1: its owner did not sign its policy`,
  ],
  [
    "a signature of someone else",
    (world) => (world.loaded = { ownerAddress: SECOND }),
    `${NOT_SIGNED}: agent agt_1: its owner did not sign its policy`,
  ],
  [
    "an owner whose contract cannot be read",
    (world) =>
      world.verdicts.set(`${SECOND}|0|${world.document().digest}`, "unavailable") &&
      (world.loaded = { ownerAddress: SECOND }),
    "chain_unavailable",
  ],
  [
    "a contract as owner was called when it signed",
    (world) => (world.loaded = { ownerChainId: 5 }),
    null,
  ],
  [
    "a policy of another agent",
    (world) => (world.order = { agent: "agt_2" }),
    `${NOT_SIGNED}: agent agt_1: its policy is of a different agent`,
  ],
  [
    "a policy of another wallet",
    (world) => (world.order = { wallet: SECOND }),
    `${NOT_SIGNED}: agent agt_1: its policy is of a different agent`,
  ],
  [
    "rules that are not sealed",
    (world) => (world.evidence = { rulesDigest: hash("8") }),
    `${NOT_SIGNED}: agent agt_1: its rules differ from the sealed rules`,
  ],
  [
    "rules that are wider than signed",
    (world) => (world.rules = rulesOf({ dailyLimitAtomic: 1_001n })),
    `${NOT_SIGNED}: agent agt_1: its rules allow more than its signed policy`,
  ],
  [
    "rules that are narrower than signed",
    (world) => (world.rules = rulesOf({ dailyLimitAtomic: 999n })),
    null,
  ],
  ["paused", (world) => (world.rules = rulesOf({ status: "paused" })), CHANGED],
  [
    "one unit above the limit of a payment",
    () => undefined,
    CHANGED,
    { authorization: { value: 501n } },
  ],
  ["a payee who is not listed", () => undefined, CHANGED, { authorization: { to: UNLISTED } }],
  ["the moment before it expires", (world) => (world.loaded = { nowSeconds: NOW + 999n }), null],
  ["expired", (world) => (world.loaded = { nowSeconds: NOW + 1_000n }), CHANGED],
  [
    "a payee of one site, there",
    () => undefined,
    null,
    { authorization: { to: AT_SITE }, cover: { kind: "policy", site: SITE } },
  ],
  [
    "a payee of one site, at another",
    () => undefined,
    CHANGED,
    { authorization: { to: AT_SITE }, cover: { kind: "policy", site: OTHER_SITE } },
  ],
  [
    "a payee of one site, paid directly",
    () => undefined,
    CHANGED,
    { authorization: { to: AT_SITE } },
  ],
  ["a payee of every site", () => undefined, null, { cover: { kind: "policy", site: OTHER_SITE } }],
  [
    "a site that is not listed",
    (world) => (world.rules = world.signedRules = rulesOf({ fetch: "sites" })),
    CHANGED,
    { cover: { kind: "policy", site: OTHER_SITE } },
  ],
  [
    "a direct payment of an agent with listed sites",
    (world) => (world.rules = world.signedRules = rulesOf({ fetch: "sites" })),
    null,
  ],
];

const unsignedOwner = (status: RulesInForce["status"]) => (world: World) => {
  world.rules = rulesOf({ status });
  world.loaded = { policyDigest: NOTHING };
  world.evidence = { policy: null };
};

POLICY_CASES.push(
  ["paused, its new owner has not signed yet", unsignedOwner("paused"), CHANGED],
  [
    "active without a policy",
    unsignedOwner("active"),
    `${NOT_SIGNED}: agent agt_1: the sealed policy is missing`,
  ],
  [
    "paused without a policy, by rules that are not sealed",
    (world) => {
      unsignedOwner("paused")(world);
      world.evidence = { policy: null, rulesDigest: hash("8") };
    },
    `${NOT_SIGNED}: agent agt_1: the sealed policy is missing`,
  ],
  [
    "paused with a missing policy",
    (world) => {
      world.rules = rulesOf({ status: "paused" });
      world.evidence = { policy: null };
    },
    `${NOT_SIGNED}: agent agt_1: the sealed policy is missing`,
  ],
);

t.test("a payment by the policy", async (t) => {
  for (const [what, change, expected, paid = {}] of POLICY_CASES) {
    const world = signedWorld(change);
    const request = {
      agentId: AGENT,
      authorization: payment(paid.authorization),
      cover: paid.cover ?? BY_POLICY,
    };
    t.equal(await refusalOf(() => world.covers.check(request)), expected, what);
  }
});

t.test("a verified policy is verified once, and compared each time", async (t) => {
  const world = signedWorld();
  const check = () =>
    refusalOf(() =>
      world.covers.check({ agentId: AGENT, authorization: payment(), cover: BY_POLICY }),
    );
  t.equal(await check(), null);
  t.equal(await check(), null);
  t.equal(world.reads.evidence, 1);
  for (const [what, loaded] of [
    ["columns", { columns: "" }],
    ["the payee's row", { payeeColumns: null }],
    ["the version", { latestVersion: 2 }],
  ] as const) {
    world.loaded = loaded;
    t.match(await check(), NOT_SIGNED, what);
  }
  // Each member of the seal leads to another policy, which is read and verified.
  for (const loaded of [
    { address: SECOND },
    { ownerAddress: SECOND },
    { ownerChainId: 1 },
    { policyDigest: hash("6") },
    { rulesDigest: hash("6") },
  ]) {
    world.loaded = loaded;
    const before = world.reads.evidence;
    await check();
    t.equal(world.reads.evidence, before + 1, Object.keys(loaded).join());
  }
  world.loaded = { rulesVersion: newestVersion() + 1 };
  t.equal(await check(), "policy_version_unknown", "also of a known policy");
});

t.test("an older seal that was put back", async (t) => {
  const world = signedWorld();
  const load = () => refusalOf(() => world.covers.load({ agentId: AGENT, payee: PAYEE, site: "" }));
  const old = `${NOT_SIGNED}: an older seal of agent agt_1 was put back`;
  t.equal(await load(), null);
  world.loads = [{ revision: 3 }, {}];
  t.equal(await load(), null, "two reads finished out of order");
  t.equal(world.reads.loads, 3);
  world.loads = [{ revision: 3 }, { revision: 3 }];
  t.equal(await load(), old);
  world.loads = [{ revision: 5 }];
  t.equal(await load(), null);
  world.loads = [{}, {}];
  t.equal(await load(), old, "the newest revision that was seen counts");
  world.loads = [{}];
  const gone = world.covers.load({ agentId: AGENT, payee: PAYEE, site: "" });
  world.hasWallet = false;
  t.equal(await refusalOf(() => gone), old, "it is gone at the second read");

  const { covers } = world;
  const named = { ...world.wallet({ payee: PAYEE, site: "" }) };
  t.equal(await refusalOf(async () => covers.assertNewest({ ...named, revision: 4 })), old);
  t.equal(await refusalOf(async () => covers.assertNewest({ ...named, revision: 5 })), null);
  const other = { ...named, agentId: "agt_2", revision: 0 };
  t.equal(await refusalOf(async () => covers.assertNewest(other)), null);
});

t.test("an allowance", async (t) => {
  const wanted = { value: 10_000n, deadline: NOW + 300n };
  const allow = async (
    world: World,
    more: Partial<Parameters<Covers["checkAllowance"]>[0]> = {},
    request = wanted,
  ) => {
    const { value } = await world.covers.checkAllowance(
      { agentId: AGENT, authorization: payment(), cover: BY_POLICY, ...more },
      request,
    );
    return value;
  };
  t.equal(await allow(signedWorld()), 800n, "at most what all limits allow in a day");
  t.equal(await allow(signedWorld(), {}, { ...wanted, value: 700n }), 700n);
  t.equal(await allow(signedWorld(), {}, { ...wanted, value: 500n }), 500n, "just this payment");
  const cases: [string, string, Parameters<typeof allow>[1], typeof wanted][] = [
    ["less than the payment", CHANGED, {}, { ...wanted, value: 499n }],
    [
      "valid too long",
      "CustodyError: this allowance could be granted too late",
      {},
      { ...wanted, deadline: NOW + 301n },
    ],
    [
      "for an approved payment",
      "NotSignedFor: agent agt_1: an allowance is only for payments",
      { cover: { kind: "approval", approvalId: "apr_1" } },
      wanted,
    ],
    ["for a payment above its limit", CHANGED, { authorization: payment({ value: 501n }) }, wanted],
    [
      "at a site that is not the payee's",
      CHANGED,
      { authorization: payment({ to: AT_SITE }), cover: { kind: "policy", site: OTHER_SITE } },
      wanted,
    ],
  ];
  for (const [what, expected, more, request] of cases)
    t.match(await refusalOf(() => allow(signedWorld(), more, request)), expected, what);
  const there = {
    authorization: payment({ to: AT_SITE }),
    cover: { kind: "policy", site: SITE },
  } as const;
  t.equal(await allow(signedWorld(), there), 800n);
});

t.test(
  "a voucher is covered as a payment of what it adds, and its deposit by what may be held",
  async (t) => {
    const channels: Partial<RulesInForce> = {
      channelHeldAtomic: 1_000n,
      channelDelaySeconds: 3_600n,
      payees: [
        payee({ address: PAYEE, channelHeldAtomic: 900n }),
        payee({ address: AT_SITE, site: SITE }),
      ],
    };
    const order = (
      more: Partial<ChannelOrder> = {},
      config: Partial<ChannelOrder["config"]> = {},
    ) => ({
      chainId: CHAIN_ID,
      config: {
        payer: WALLET,
        payerAuthorizer: SECOND,
        receiver: PAYEE,
        receiverAuthorizer: SECOND,
        token: ASSET,
        withdrawDelay: 3_600,
        salt: hash("6"),
        ...config,
      },
      ceiling: 500n,
      ...more,
    });
    const deposit = (amount: bigint) => ({ amount, validBefore: NOW, salt: hash("6") });
    const before = { ceiling: 2_000n, voucher: SIGNATURE };
    const cases: [string, string | null, ChannelOrder, string?, Partial<RulesInForce>?][] = [
      ["the first", null, order()],
      ["above one payment", CHANGED, order({ ceiling: 501n })],
      ["one payment more", null, order({ ceiling: 2_500n, before })],
      ["more than one payment more", CHANGED, order({ ceiling: 2_501n, before })],
      ["with a deposit", null, order({ deposit: deposit(900n) })],
      ["with a deposit above the payee's", CHANGED, order({ deposit: deposit(901n) })],
      [
        "with a deposit at its site",
        null,
        order({ deposit: deposit(1_000n) }, { receiver: AT_SITE }),
        SITE,
      ],
      [
        "with a deposit above the agent's",
        CHANGED,
        order({ deposit: deposit(1_001n) }, { receiver: AT_SITE }),
        SITE,
      ],
      ["at another site", CHANGED, order({}, { receiver: AT_SITE }), OTHER_SITE],
      ["at no site", CHANGED, order({}, { receiver: AT_SITE })],
      ["to a payee who is not listed", CHANGED, order({}, { receiver: UNLISTED })],
      ["a longer delay", CHANGED, order({}, { withdrawDelay: 3_601 })],
      ["no channels are allowed", CHANGED, order(), "", { channelHeldAtomic: 0n }],
      ["the agent is paused", CHANGED, order(), "", { status: "paused" }],
    ];
    for (const [what, expected, wanted, site = "", rules = {}] of cases) {
      const world = signedWorld((one) => {
        one.signedRules = rulesOf({ ...channels, ...rules, status: "active" });
        one.rules = rulesOf({ ...channels, ...rules });
      });
      t.equal(
        await refusalOf(() => world.covers.checkChannel(AGENT, wanted, site)),
        expected,
        what,
      );
      t.match(world.paidAt, { agentId: AGENT, payee: wanted.config.receiver, site }, what);
    }
    const world = signedWorld((one) => (one.rules = one.signedRules = rulesOf(channels)));
    t.match(await world.covers.checkChannel(AGENT, order(), ""), {
      agentId: AGENT,
      address: WALLET,
    });
  },
);

t.test("signing in at a site", async (t) => {
  const at = (payee: Address, site: string, world = signedWorld()) =>
    refusalOf(() => world.covers.checkSite({ agentId: AGENT, payee, site }));
  t.equal(await at(AT_SITE, SITE), null);
  t.equal(await at(AT_SITE, OTHER_SITE), CHANGED);
  t.equal(await at(UNLISTED, SITE), CHANGED);
  const least = signedWorld((world) => {
    world.rules = world.signedRules = rulesOf({ perPaymentLimitAtomic: 1n });
  });
  t.equal(await at(AT_SITE, SITE, least), null, "the least that a site may be paid");
});

const approved = (
  more: Partial<Parameters<typeof approvalOrder>[0]> = {},
  chainId = CHAIN_ID,
): SignedDocument => {
  const order = approvalOrder({
    agentId: AGENT,
    payee: UNLISTED,
    asset: ASSET,
    maxAmountAtomic: 9_000n,
    site: "",
    approvalId: "apr_1",
    nonce: hash("4"),
    deadlineSeconds: NOW + 60n,
    ...more,
  });
  return signedDocument("ApprovePayment", order, chainId);
};

function signedDocument<K extends OrderKind>(kind: K, order: Orders[K], chainId: number) {
  const digest = orderDigest(kind, order, chainId, "readable");
  return { document: order, digest, signature: SIGNATURE, chainId };
}

interface ApprovalCase {
  what: string;
  expected?: string | null;
  order?: Parameters<typeof approved>[0];
  chainId?: number;
  authorization?: Partial<Authorization>;
  site?: string;
  change?: (world: World) => void;
}
const NOT_APPROVED = `${NOT_SIGNED}: agent agt_1: its owner did not approve this payment`;

t.test("a payment that the owner approved", async (t) => {
  const cases: ApprovalCase[] = [
    { what: "as approved: unlisted, and above every limit", expected: null },
    { what: "less than approved", expected: null, authorization: { value: 1n } },
    { what: "at a site", expected: null, order: { site: SITE }, site: SITE },
    { what: "one unit more", authorization: { value: 9_001n } },
    { what: "of another agent", order: { agentId: "agt_2" } },
    { what: "another approval", order: { approvalId: "apr_2" } },
    { what: "another payee", order: { payee: PAYEE } },
    { what: "another asset", order: { asset: WALLET } },
    { what: "another site", order: { site: SITE }, site: OTHER_SITE },
    { what: "paid directly, approved for a site", order: { site: SITE } },
    { what: "at a site, approved directly", site: SITE },
    { what: "another nonce", authorization: { nonce: hash("7") } },
    { what: "valid longer than the order", authorization: { validBefore: NOW + 61n } },
    { what: "on another chain", chainId: OTHER_CHAIN, authorization: { chainId: CHAIN_ID } },
    { what: "no order", change: (world) => (world.approval = undefined) },
    {
      what: "not signed",
      change: (world) => world.verdicts.delete(`${OWNER}|0|${world.approval?.digest}`),
    },
    {
      what: "changed after it was signed",
      change: (world) =>
        (world.approval = {
          ...approved(),
          document: { ...(approved().document as object), maxAmount: "10000" },
        }),
    },
    {
      what: "paused",
      expected: CHANGED,
      change: (world) => (world.rules = rulesOf({ status: "paused" })),
    },
    {
      what: "the agent expired",
      expected: CHANGED,
      change: (world) => (world.loaded = { nowSeconds: NOW + 1_000n }),
    },
    {
      what: "a contract is the owner, and does not vouch for it now",
      change: (world) => (world.loaded = { ownerChainId: 5 }),
    },
    {
      what: "a contract is the owner, and vouches for it",
      expected: null,
      change: (world) => {
        world.loaded = { ownerChainId: 5 };
        world.signedBy(OWNER, approved().digest, 5);
      },
    },
  ];
  for (const {
    what,
    expected = NOT_APPROVED,
    order,
    chainId,
    authorization,
    site,
    change,
  } of cases) {
    const approval = approved(order, chainId);
    const world = signedWorld();
    world.approval = approval;
    world.signedBy(OWNER, approval.digest);
    change?.(world);
    world.signedBy(OWNER, world.document().digest);
    const request = {
      agentId: AGENT,
      authorization: payment({
        to: UNLISTED,
        value: 9_000n,
        nonce: approval.digest,
        ...authorization,
      }),
      cover: { kind: "approval", approvalId: "apr_1", ...(site && { site }) } as const,
    };
    t.equal(await refusalOf(() => world.covers.check(request)), expected, what);
    if (expected === null) t.same(world.asked, [[AGENT, "apr_1"]]);
  }
});

interface WithdrawalCase {
  what: string;
  expected?: string | null;
  row?: Partial<WithdrawalRow>;
  authorization?: Partial<Authorization>;
  /** Who signed the order, and on which chain. */
  signer?: Address;
  signerChain?: number;
  second?: Partial<Orders["SecondWallet"]>;
  secondSigner?: Address;
  hasSecond?: false;
  unavailable?: true;
}

t.test("a withdrawal", async (t) => {
  const NOT_ORDERED = `${NOT_SIGNED}: agent agt_1: the withdrawal is not what was ordered`;
  const NOT_BY_OWNER = `${NOT_SIGNED}: agent agt_1: its owner did not sign this withdrawal`;
  const cases: WithdrawalCase[] = [
    { what: "as ordered", expected: null },
    { what: "to anyone whom the owner named", expected: null, row: { to: UNLISTED } },
    { what: "to another address", expected: NOT_ORDERED, authorization: { to: PAYEE } },
    { what: "one unit more", expected: NOT_ORDERED, authorization: { value: 501n } },
    { what: "one unit less", expected: NOT_ORDERED, authorization: { value: 499n } },
    { what: "another nonce", expected: NOT_ORDERED, authorization: { nonce: hash("4") } },
    {
      what: "valid after the deadline",
      expected: NOT_ORDERED,
      authorization: { validBefore: NOW + 61n },
    },
    {
      what: "valid until before the deadline",
      expected: null,
      authorization: { validBefore: NOW + 59n },
    },
    {
      what: "an order that cannot be read",
      expected: NOT_ORDERED,
      row: { amountAtomic: -1n },
      authorization: { value: -1n },
    },
    { what: "on another chain than signed", authorization: { chainId: OTHER_CHAIN } },
    { what: "of another asset than signed", authorization: { asset: PAYEE } },
    { what: "signed by someone else", signer: UNLISTED },
    { what: "an owner who cannot be asked", expected: "chain_unavailable", unavailable: true },
    { what: "to the owner, signed by the second wallet", expected: null, signer: SECOND },
    { what: "elsewhere, signed by the second wallet", signer: SECOND, row: { to: UNLISTED } },
    { what: "signed by a second wallet that nobody named", signer: SECOND, hasSecond: false },
    {
      what: "signed by a second wallet that someone else named",
      signer: SECOND,
      secondSigner: UNLISTED,
    },
    {
      what: "signed by the second wallet of another owner",
      signer: SECOND,
      second: { owner: UNLISTED },
    },
    { what: "signed by another second wallet", signer: SECOND, second: { second: UNLISTED } },
    {
      what: "signed by the contract of a second wallet",
      expected: null,
      signer: SECOND,
      signerChain: 5,
      second: { secondChain: "5" },
    },
    {
      what: "signed by a plain key in place of a contract",
      signer: SECOND,
      second: { secondChain: "5" },
    },
  ];
  for (const one of cases) {
    const { what, expected = NOT_BY_OWNER, signer = OWNER, signerChain = 0 } = one;
    const world = signedWorld();
    const row = {
      to: OWNER,
      amountAtomic: 500n,
      deadlineSeconds: NOW + 60n,
      signature: SIGNATURE,
      ...one.row,
    };
    world.withdrawal = row;
    const ordered: Orders["Withdraw"] = {
      wallet: WALLET,
      to: row.to,
      asset: ASSET,
      amount: String(row.amountAtomic),
      nonce: hash("7"),
      deadline: String(row.deadlineSeconds),
    };
    if (row.amountAtomic >= 0n) {
      const digest = orderDigest("Withdraw", ordered, CHAIN_ID, "readable");
      if (one.unavailable) world.verdicts.set(`${OWNER}|0|${digest}`, "unavailable");
      else world.signedBy(signer, digest, signerChain);
    }
    const naming = {
      owner: OWNER,
      second: SECOND,
      secondChain: "0",
      nonce: hash("3"),
      deadline: "9",
      ...one.second,
    };
    if (one.hasSecond !== false) world.second = signedDocument("SecondWallet", naming, CHAIN_ID);
    if (world.second) world.signedBy(one.secondSigner ?? OWNER, world.second.digest);
    const request = {
      agentId: AGENT,
      authorization: payment({ to: row.to, value: row.amountAtomic, ...one.authorization }),
      cover: { kind: "withdrawal", orderNonce: hash("7") } as const,
    };
    t.equal(await refusalOf(() => world.covers.check(request)), expected, what);
    t.same(world.asked, [[AGENT, hash("7")]]);
    t.equal(world.reads.evidence, 0, "no policy limits a withdrawal");
  }
  const none = signedWorld();
  const request = {
    agentId: AGENT,
    authorization: payment(),
    cover: { kind: "withdrawal", orderNonce: hash("7") } as const,
  };
  t.equal(
    await refusalOf(() => none.covers.check(request)),
    `${NOT_SIGNED}: agent agt_1: there is no order for this withdrawal`,
  );
});

t.test("the rows are those of the payee at the site", async (t) => {
  const at = (site: string) => ({ agentId: AGENT, payee: AT_SITE, site });
  const authorization = payment({ to: AT_SITE.toUpperCase().replace("X", "x") as Address });
  for (const cover of [
    { kind: "policy", site: SITE },
    { kind: "approval", approvalId: "apr_1", site: SITE },
  ] as const) {
    const world = signedWorld();
    await refusalOf(() => world.covers.check({ agentId: AGENT, authorization, cover }));
    t.same(world.paidAt, at(SITE));
  }
  const world = signedWorld();
  const cover = { kind: "policy", site: SITE } as const;
  await refusalOf(() =>
    world.covers.checkAllowance(
      { agentId: AGENT, authorization, cover },
      { value: 1n, deadline: NOW },
    ),
  );
  t.same(world.paidAt, at(SITE));
  const withdrawal = { kind: "withdrawal", orderNonce: hash("7") } as const;
  await refusalOf(() => world.covers.check({ agentId: AGENT, authorization, cover: withdrawal }));
  t.same(world.paidAt, at(""));
});

t.test("only so many policies are kept", async (t) => {
  const most = { policies: 2, payees: 100 };
  const world = signedWorld((world) => world.keepsAtMost(most));
  const reads = async (agents: string) => {
    const before = world.reads.evidence;
    for (const [index, agentId] of agents.split("").entries()) {
      // A cached policy of another agent: its seal is the same, so that only the name tells them apart.
      world.loaded = { agentId };
      world.order = { agent: agentId };
      world.signedBy(OWNER, world.document().digest);
      const request = { agentId, authorization: payment(), cover: BY_POLICY };
      t.equal(await refusalOf(() => world.covers.check(request)), null, `${agents}: ${index}`);
    }
    return world.reads.evidence - before;
  };
  t.equal(await reads("abab"), 2, "two fit");
  t.equal(await reads("c"), 1);
  t.equal(await reads("bc"), 0, "the newer ones stay");
  t.equal(await reads("a"), 1, "the oldest was forgotten");
  // Each has two payees.
  world.keepsAtMost({ policies: 100, payees: 4 });
  t.equal(await reads("abab"), 2);
  t.equal(await reads("c"), 1);
  t.equal(await reads("bcbc"), 0);
  t.equal(await reads("abc"), 3);
});

t.test("only so many revisions are kept", async (t) => {
  const world = signedWorld((world) => world.keepsAtMost({ policies: 2, payees: 100 }));
  const load = (agentId: string, revision: number) => {
    world.loads = [
      { agentId, revision },
      { agentId, revision },
    ];
    return refusalOf(() => world.covers.load({ agentId, payee: PAYEE, site: "" }));
  };
  const old = /was put back/;
  for (const agentId of ["a", "b"]) t.equal(await load(agentId, 5), null);
  for (const agentId of ["a", "b"]) t.match(await load(agentId, 4), old, "both are known");
  t.equal(await load("a", 6), null, "now the newest");
  t.equal(await load("c", 5), null);
  t.match(await load("a", 5), old);
  t.equal(await load("b", 4), null, "the one that changed longest ago was forgotten");
});
