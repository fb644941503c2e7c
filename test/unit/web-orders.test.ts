// Goal: the web app lets a wallet sign only the order that its form requested, and predicts when a signature is needed.
import t from "tap";
import { orderDigest, policyOrder, typedDataOf, REQUESTED_FORM } from "../../server/core/orders.ts";
import { loosens as serverLoosens, type Rules } from "../../server/core/rules.ts";
import {
  diffTerms,
  isSameTerms,
  loosens,
  NO_TERMS,
  termsAllowing,
  termsOfOrder,
  termsWith,
  type Terms,
} from "../../web/src/lib/orders/terms.ts";
import { creationRequest, keyRequest } from "../../web/src/lib/orders/requests.ts";
import {
  type FieldToSign,
  fieldsToSign,
  moveToSign,
  allowAgainToSign,
  budgetToSign,
  resumeToSign,
  secondWalletToSign,
  withdrawalToSign,
} from "../../web/src/lib/orders/to-sign.ts";
import { diffMembers, membersToSign, type TeamTerms } from "../../web/src/lib/orders/members.ts";
import { carryOut, toSignOf } from "../../web/src/lib/orders/waiting.ts";
import { checkDraft } from "../../web/src/features/teams/members.ts";
import type { Team, WaitingOrder } from "../../web/src/lib/wire.ts";
import { hashTypedData, zeroAddress } from "viem";
import { testAccount } from "../helpers/chain.ts";

const CHAIN_ID = 5042002;
const NONCE = `0x${"ab".repeat(32)}` as const;
const deadlineSeconds = BigInt(Math.floor(Date.now() / 1000) + 600);
const payee = testAccount(3).address;
const wallet = testAccount(4).address;

const RULES: Rules = {
  dailyLimitAtomic: 5_000_000n,
  weeklyLimitAtomic: 20_000_000n,
  monthlyLimitAtomic: null,
  perPaymentLimitAtomic: 1_500_000n,
  paymentsPerHour: 12n,
  fetch: "any",
  expiresAtSeconds: 1_900_000_000n,
  payees: [
    {
      address: payee.toLowerCase() as `0x${string}`,
      label: "Weather API",
      site: "",
      dailyLimitAtomic: 1_000_000n,
      perPaymentLimitAtomic: null,
      expiresAtSeconds: null,
    },
  ],
};
const orderOf = (rules: Rules, name = "a") =>
  policyOrder({
    agentId: "agt_1",
    walletAddress: wallet,
    version: 1,
    name,
    rules,
    nonce: NONCE,
    deadlineSeconds,
  });
const body = {
  name: "a",
  dailyLimit: "5",
  weeklyLimit: "20",
  perPaymentLimit: "1.50",
  paymentsPerHour: 12,
  fetch: "any" as const,
  expiresAt: new Date(1_900_000_000_900).toISOString(),
  allowlist: [{ address: payee, label: "Weather API ", dailyLimit: "1" }],
};

t.test("the wallet's typed data has the digest that the server checks", async (t) => {
  const order = orderOf(RULES);
  const typed = typedDataOf("AgentPolicy", order, CHAIN_ID, REQUESTED_FORM);
  t.equal(
    hashTypedData(typed as never),
    orderDigest("AgentPolicy", order, CHAIN_ID, REQUESTED_FORM),
  );
});

t.test("an order with the requested rules is shown; any other is not signed", async (t) => {
  const ask = creationRequest(body, "eip155:5042002");
  const { changes, hasUnseenChanges } = await ask.read({ ...orderOf(RULES) });
  t.equal(hasUnseenChanges, false);
  t.same(changes.map(({ what, after }) => `${what}: ${after}`).slice(0, 5), [
    "Name: a",
    "Daily limit: 5.00 USDC",
    "Weekly limit: 20.00 USDC",
    "Limit per payment: 1.50 USDC",
    "Payments per hour: 12",
  ]);
  const [first] = RULES.payees;
  if (!first) throw new Error("no payee");
  const otherPayee = { ...first, address: testAccount(9).address.toLowerCase() as `0x${string}` };
  const worse: [string, Rules, string?][] = [
    ["a higher limit", { ...RULES, dailyLimitAtomic: 5_000_001n }],
    ["no weekly limit", { ...RULES, weeklyLimitAtomic: null }],
    ["no limit per payment", { ...RULES, perPaymentLimitAtomic: null }],
    ["more payments", { ...RULES, paymentsPerHour: null }],
    ["a later end", { ...RULES, expiresAtSeconds: 1_900_000_001n }],
    ["another payee", { ...RULES, payees: [otherPayee] }],
    ["one payee more", { ...RULES, payees: [first, otherPayee] }],
    ["a payee without its limit", { ...RULES, payees: [{ ...first, dailyLimitAtomic: null }] }],
    ["a payee of a site", { ...RULES, payees: [{ ...first, site: "https://evil.example" }] }],
    ["another name", RULES, "b"],
  ];
  for (const [what, rules, name] of worse)
    await t.rejects(
      async () => ask.read({ ...orderOf(rules, name) }),
      { name: "OrderMismatch" },
      what,
    );
  const old = { ...orderOf(RULES), deadline: String(deadlineSeconds + 86_400n) };
  await t.rejects(async () => ask.read(old), { name: "OrderMismatch" }, "good for a day");
  await t.rejects(async () => ask.read({ ...orderOf(RULES), dailyLimit: "many" }), "no number");
});

t.test("a payee is added or replaced, and all others keep their terms", async (t) => {
  const terms = termsOfOrder({ ...orderOf(RULES) });
  const added = termsAllowing(terms, { address: testAccount(9).address, label: "News" });
  const [first] = terms.payees;
  t.same(
    added.payees.find(({ address }) => address === first?.address),
    first,
  );
  t.same(
    diffTerms(terms, added).map(({ what }) => what),
    ["Payee added"],
  );
  const replaced = termsAllowing(terms, { address: testAccount(9).address }, payee);
  t.same(
    replaced.payees.map(({ address, dailyLimitAtomic }) => [address, dailyLimitAtomic]),
    [[testAccount(9).address, 1_000_000n]],
    "a new address has the terms of the one that it replaces",
  );
  const raised = termsAllowing(terms, { address: payee, label: "Weather API", dailyLimit: "2" });
  t.same(
    diffTerms(terms, raised).map(({ before, after }) => [before, after]),
    [["1.00 USDC a day", "2.00 USDC a day"]],
  );
});

t.test("a key is issued to the requested agent, with its label and end", async (t) => {
  const agent = {
    id: "agt_1",
    name: "a",
    network: "eip155:5042002",
    walletAddress: wallet,
  };
  const ask = keyRequest({ agent, title: "New API key", label: "ci", expiresAt: null });
  const order = {
    agent: "agt_1",
    wallet: agent.walletAddress,
    label: "ci",
    expiresAt: String((1n << 256n) - 1n),
    nonce: NONCE,
    deadline: String(deadlineSeconds),
  };
  t.match(await ask.read(order), { changes: [{ what: "New API key", after: "ci" }, {}, {}] });
  for (const change of [{ agent: "agt_2" }, { label: "x" }, { expiresAt: "1900000000" }])
    await t.rejects(async () => ask.read({ ...order, ...change }), { name: "OrderMismatch" });
});

const SINGLE_USE = { nonce: NONCE, deadline: String(deadlineSeconds) };
const other = testAccount(9).address;
const USDC = "0x3600000000000000000000000000000000000000";
const NETWORK = {
  chainId: CHAIN_ID,
  name: "Arc Testnet",
  usdc: { address: USDC, name: "USDC", version: "2" },
} as const;
const differs = { name: "OrderMismatch" };

t.test("a withdrawal to another address, or of another amount, is not signed", async (t) => {
  const order = { wallet, to: payee, asset: USDC, amount: "1500000", ...SINGLE_USE };
  const wanted = { wallet, to: payee, amount: "1.5" };
  const typed = withdrawalToSign(order, wanted, NETWORK);
  t.equal(hashTypedData(typed as never), orderDigest("Withdraw", order, CHAIN_ID, REQUESTED_FORM));
  const max = withdrawalToSign(order, { ...wanted, amount: "max" }, NETWORK);
  t.equal(hashTypedData(max as never), hashTypedData(typed as never), "all that there is");
  const changes = [
    { to: other },
    { wallet: other },
    { amount: "1500001" },
    { nonce: "0x1" },
    // Another token than the network's USDC.
    { asset: other },
  ];
  for (const change of changes) {
    t.throws(() => withdrawalToSign({ ...order, ...change }, wanted, NETWORK), differs);
    const max = { ...wanted, amount: "max" };
    if (!("amount" in change))
      t.throws(() => withdrawalToSign({ ...order, ...change }, max, NETWORK), differs);
  }
  const late = { ...order, deadline: String(deadlineSeconds + 86_400n) };
  t.throws(() => withdrawalToSign(late, wanted, NETWORK), differs, "good for a day");
});

/** Each field as the review shows it. */
const lines = (fields: FieldToSign[]): string[] =>
  fields.flatMap(({ name, raw, plain, entries }) =>
    entries
      ? entries.flatMap((entry) => lines(entry).map((line) => `${name} ${line}`))
      : [`${name}: ${plain === undefined ? raw : `${plain} (your wallet shows ${raw})`}`],
  );

t.test("the review explains every raw field of the document that is signed", async (t) => {
  const policy = { ...orderOf(RULES) };
  const typed = typedDataOf("AgentPolicy", policy, CHAIN_ID, "numbers");
  const shown = lines(fieldsToSign(typed, NETWORK as never));
  const none = String((1n << 256n) - 1n);
  for (const line of [
    `domain name: ${typed.domain.name}`,
    `domain version: ${typed.domain.version}`,
    "chainId: Arc Testnet (your wallet shows 5042002)",
    `wallet: ${wallet}`,
    "dailyLimit: 5.00 USDC (your wallet shows 5000000)",
    `monthlyLimit: no limit (your wallet shows ${none})`,
    "paymentsPerHour: 12",
    "fetch: any site (your wallet shows any)",
    `payees payee: ${payee}`,
    "payees dailyLimit: 1.00 USDC (your wallet shows 1000000)",
    `nonce: ${NONCE}`,
  ])
    t.ok(shown.includes(line), line);
  t.match(
    shown.find((line) => line.startsWith("expiresAt")),
    / 2030.*\(your wallet shows 1900000000\)$/,
  );
  t.match(
    shown.find((line) => line.startsWith("deadline")),
    new RegExp(`, .*\\(your wallet shows ${deadlineSeconds}\\)$`),
  );
  const structs: Record<string, { name: string }[]> = typed.types;
  const members = ["AgentPolicy", "Payee"].flatMap((struct) => structs[struct] ?? []);
  for (const { name } of members.filter(({ name }) => name !== "payees"))
    t.ok(
      shown.some((line) => line.startsWith(`${name}: `) || line.startsWith(`payees ${name}: `)),
      `${name} is shown`,
    );

  const withdrawal = { wallet, to: payee, asset: USDC, amount: "25000000", ...SINGLE_USE };
  const review = (asset: string) =>
    lines(
      fieldsToSign(
        typedDataOf("Withdraw", { ...withdrawal, asset }, CHAIN_ID, "numbers") as never,
        NETWORK as never,
      ),
    );
  t.ok(review(USDC).includes("amount: 25.00 USDC (your wallet shows 25000000)"));
  t.ok(review(USDC).includes(`asset: USDC on Arc Testnet (your wallet shows ${USDC})`));
  t.ok(review(other).includes(`asset: not USDC on Arc Testnet (your wallet shows ${other})`));
});

t.test("another recovery wallet than the one that was entered is not signed", async (t) => {
  const order = { owner: wallet, second: payee, secondChain: "0", ...SINGLE_USE };
  const wanted = { owner: wallet, second: payee };
  const typed = secondWalletToSign(order, wanted, CHAIN_ID);
  t.equal(
    hashTypedData(typed as never),
    orderDigest("SecondWallet", order, CHAIN_ID, REQUESTED_FORM),
  );
  for (const change of [{ owner: other }, { second: other }, { secondChain: "1" }])
    t.throws(() => secondWalletToSign({ ...order, ...change }, wanted, CHAIN_ID), differs);
  const revoked = { ...order, second: zeroAddress };
  secondWalletToSign(revoked, { owner: wallet, second: null }, CHAIN_ID);
  t.throws(() => secondWalletToSign(order, { owner: wallet, second: null }, CHAIN_ID), differs);
});

t.test("agents that would move to another wallet are not signed for", async (t) => {
  const order = { from: wallet, to: payee, ...SINGLE_USE };
  const wanted = { from: wallet, to: payee };
  const typed = moveToSign(order, wanted, CHAIN_ID);
  t.equal(hashTypedData(typed as never), orderDigest("MoveOwner", order, CHAIN_ID, REQUESTED_FORM));
  for (const change of [{ from: other }, { to: other }])
    t.throws(() => moveToSign({ ...order, ...change }, wanted, CHAIN_ID), differs);
});

t.test("a stop that the screen does not show is not resumed", async (t) => {
  const order = { owner: wallet, stoppedAt: "1900000000", ...SINGLE_USE };
  const wanted = { owner: wallet, stoppedAt: "2030-03-17T17:46:40.999Z" };
  const typed = resumeToSign(order, wanted, CHAIN_ID);
  t.equal(hashTypedData(typed as never), orderDigest("Resume", order, CHAIN_ID, REQUESTED_FORM));
  for (const change of [{ owner: other }, { stoppedAt: "1900000001" }])
    t.throws(() => resumeToSign({ ...order, ...change }, wanted, CHAIN_ID), differs);
});

t.test("a payee that the screen does not show is not allowed again", async (t) => {
  const order = { owner: wallet, payee: "https://shop.example", ...SINGLE_USE };
  const wanted = { owner: wallet, payee: "https://shop.example" };
  const typed = allowAgainToSign(order, wanted, CHAIN_ID);
  t.equal(
    hashTypedData(typed as never),
    orderDigest("AllowPayeeAgain", order, CHAIN_ID, REQUESTED_FORM),
  );
  for (const change of [{ owner: other }, { payee: "https://shop.example:8443" }])
    t.throws(() => allowAgainToSign({ ...order, ...change }, wanted, CHAIN_ID), differs);
});

t.test("a budget that the screen does not show is not signed", async (t) => {
  const order = {
    owner: wallet,
    budgetId: "bud_1",
    version: "4",
    name: "Research",
    dailyLimit: "12000000",
    weeklyLimit: String(2n ** 256n - 1n),
    monthlyLimit: "0",
    status: "active",
    agentsOut: "agt_a, agt_b",
    ...SINGLE_USE,
  };
  const wanted = {
    owner: wallet,
    id: "bud_1",
    version: 4,
    name: "Research",
    limits: { dailyLimit: "12", weeklyLimit: null, monthlyLimit: "0" },
    status: "active",
    agentsOut: ["agt_b", "agt_a"],
  } as const;
  const typed = budgetToSign(order, wanted, CHAIN_ID);
  t.equal(hashTypedData(typed as never), orderDigest("Budget", order, CHAIN_ID, REQUESTED_FORM));
  const changes = [
    { owner: other },
    { budgetId: "bud_2" },
    { version: "5" },
    { name: "Team" },
    { dailyLimit: "12000001" },
    { weeklyLimit: "1" },
    { monthlyLimit: order.weeklyLimit },
    { status: "archived" },
    { agentsOut: "agt_a" },
  ];
  for (const change of changes)
    t.throws(() => budgetToSign({ ...order, ...change }, wanted, CHAIN_ID), differs);
});

t.test("the web app predicts what the server treats as loosening", async (t) => {
  let seed = 7;
  const pick = <T>(items: readonly T[]): T => {
    seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31;
    return items[(seed >>> 12) % items.length] as T;
  };
  const amounts = [null, 0n, 1_000_000n, 2_500_000n];
  const addresses = [1, 2, 3].map(
    (index) => testAccount(index).address.toLowerCase() as `0x${string}`,
  );
  const random = (): Rules => ({
    dailyLimitAtomic: pick([0n, 1_000_000n, 2_500_000n]),
    weeklyLimitAtomic: pick(amounts),
    monthlyLimitAtomic: pick(amounts),
    perPaymentLimitAtomic: pick(amounts),
    paymentsPerHour: pick([null, 0n, 9n, 10n]),
    fetch: pick(["any", "sites"] as const),
    expiresAtSeconds: pick([null, 1_900_000_000n, 1_900_000_001n]),
    payees: addresses
      .filter(() => pick([true, true, false]))
      .map((address) => ({
        address,
        label: pick(["", "x"]),
        site: pick(["", "", "https://a.example", "https://b.example"]),
        dailyLimitAtomic: pick(amounts),
        perPaymentLimitAtomic: pick(amounts),
        expiresAtSeconds: pick([null, 1_900_000_000n]),
      })),
  });
  const terms = (rules: Rules): Terms => termsOfOrder({ ...orderOf(rules) });
  let loosening = 0;
  for (let round = 0; round < 3_000; round += 1) {
    const before = random();
    const one = random();
    // Often change only one field, so that this field alone decides.
    const field = pick(Object.keys(one) as (keyof Rules)[]);
    const after: Rules = pick([true, true, false]) ? { ...before, [field]: one[field] } : one;
    const serverResult = serverLoosens(
      { ...before, status: "active" },
      { ...after, status: "active" },
    );
    if (serverResult) loosening += 1;
    if (loosens(terms(before), terms(after)) !== serverResult)
      t.same(terms(after), terms(before), `the server returns ${serverResult}`);
    const isSame = isSameTerms(terms(before), terms(after));
    if ((diffTerms(terms(before), terms(after)).length === 0) !== isSame)
      t.same(terms(after), terms(before), "every difference is shown");
  }
  t.ok(loosening > 500 && loosening < 2_500, `${loosening} of 3000 loosen`);
  t.same(termsWith(NO_TERMS, {}), NO_TERMS);
});

const ada = testAccount(5).address;
const bob = testAccount(6).address;
const TERMS: TeamTerms = {
  name: "Acme",
  threshold: 1,
  approvalAboveAtomic: 1_500_000n,
  members: [
    { name: "Ada", address: ada, role: "admin" },
    { name: "Bob", address: bob, role: "approver" },
  ],
};
const LIST = {
  owner: wallet,
  version: "2",
  name: "Acme",
  threshold: "1",
  approvalAbove: "1500000",
  members: [
    { name: "Ada", account: ada, chain: "0", role: "admin" },
    { name: "Bob", account: bob, chain: "2147483647", role: "approver" },
  ],
  nonce: NONCE,
  deadline: String(deadlineSeconds),
};

t.test("a list of members is signed only if it is the one on the screen", async (t) => {
  const wanted = { ...TERMS, owner: wallet, version: 2 };
  const typedData = membersToSign(LIST, wanted, CHAIN_ID);
  t.equal(hashTypedData(typedData as never), orderDigest("Members", LIST, CHAIN_ID, "readable"));
  t.match(fieldsToSign(typedData, undefined).find(({ name }) => name === "members")?.entries?.[1], [
    { raw: "Bob" },
    { raw: bob },
    { plain: "passkeys" },
    { raw: "approver" },
  ]);
  const [first, second] = LIST.members as [object, object];
  for (const [why, other] of Object.entries({
    "another team": { owner: ada },
    "another version": { version: "3" },
    "fewer signatures": { threshold: "2" },
    "a higher amount": { approvalAbove: "1500001" },
    "another role": { members: [first, { ...second, role: "admin" }] },
    "another account": { members: [first, { ...second, account: payee }] },
    "one more member": { members: [first, second, { ...second, account: payee, name: "Eve" }] },
  }))
    t.throws(
      () => membersToSign({ ...LIST, ...other } as never, wanted, CHAIN_ID),
      {
        name: "OrderMismatch",
        message: /differs from your request/,
      },
      why,
    );
  t.same(diffMembers(TERMS, { ...TERMS, threshold: 2, members: TERMS.members.slice(0, 1) }), [
    { what: "Must sign", before: "1 admin", after: "2 admins" },
    { what: "Member removed", before: `Bob (${bob}): approver`, after: "" },
  ]);
});

t.test("what waits is signed as its order says, whatever the service shows of it", async (t) => {
  const waiting = {
    kind: "Members",
    order: LIST,
    typedData: {
      domain: { name: "Purser", version: "3", chainId: CHAIN_ID },
      message: { ...LIST, threshold: "another" },
    },
    request: { method: "POST", path: "/api/auth/act-for", body: {} },
  } as unknown as WaitingOrder;
  t.equal(
    hashTypedData(toSignOf(waiting) as never),
    orderDigest("Members", LIST, CHAIN_ID, "readable"),
  );
  await t.rejects(carryOut(waiting), /does not send POST/, "only what an order permits is sent");
});

t.test("a draft says who must sign it, and what a lost key would do", async (t) => {
  const team = {
    owner: wallet,
    name: "Acme",
    version: 1,
    threshold: 1,
    approvalAbove: "1.5",
    members: [{ name: "Ada", address: ada, signsWith: "wallet", role: "admin" }],
    warning: null,
  } as Team;
  const draft = { name: "Acme", threshold: 1, approvalAbove: "1.5", members: [...TERMS.members] };
  const check = (change: object) => checkDraft({ ...draft, ...change }, team, ada);
  t.match(check({}), {
    isEnough: false,
    fault: undefined,
    signers: "1 admin of the team signs this, and Bob accepts by signing too.",
    warning: /Only one admin/,
  });
  t.equal(check({ members: TERMS.members.slice(0, 1), name: "Acme Ltd" }).isEnough, true);
  t.match(check({ threshold: 2 }).fault, /needs the signatures of 2 admins, and has 1/);
  t.match(check({ approvalAbove: "1,5x" }).fault, /Enter an amount/);
  t.match(check({ members: [] }).fault, /has no members/);
});
