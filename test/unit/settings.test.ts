// Goal: every setting of a rule is in everything that must know it: the signed document, the comparison of rules, the
// schemas, the calls of the custody process, the form and the text of an order; and a document that was signed in an
// earlier version stays the same document.
import t, { type Test } from "tap";
import { hashTypedData, recoverAddress, type Hex } from "viem";
import {
  AGENT,
  AGENT_FIELDS,
  PAYEE_FIELDS,
  SELF_FIELDS,
  settingsOnWire,
  valueIn,
  type Field,
} from "../../packages/rules/src/fields.ts";
import {
  AMOUNT,
  choice,
  COUNT,
  DURATION,
  HELD,
  OPTIONAL_AMOUNT,
  OPTIONAL_HELD,
  TIME,
  type Kind,
  type Value,
  type Wire,
} from "../../packages/rules/src/kinds.ts";
import { newestVersion, policyTypes, versionOf } from "../../packages/rules/src/policy.ts";
import {
  orderDigest,
  policyOrder,
  readOrder,
  rulesOfPolicy,
  typedDataOf,
  versionFor,
  type AgentPolicyOrder,
  REQUESTED_FORM,
} from "../../server/core/orders.ts";
import {
  coverOf,
  loosens,
  mostOfDay,
  payeeKey,
  refusesApproved,
  rulesDigest,
  sortPayees,
  type Payee,
  type RulesInForce,
} from "../../server/core/rules.ts";
import { POLICY_TYPES } from "../../packages/purser/src/owner.ts";
import { Authority, type EntryBody } from "../../server/plugins/audit/authority.ts";
import { assertCall } from "../../server/plugins/custody/vault-calls.ts";
import { columnsText, payeeText, readRules } from "../../server/plugins/custody/columns.ts";
import { RULES } from "../../server/plugins/guardrails/rules.ts";
import {
  AddAllowlistBody,
  Agent,
  AllowlistEntry,
  CreateAgentBody,
  UpdateAgentBody,
} from "../../server/schemas/agents.ts";
import { AgentSelf } from "../../server/schemas/payments.ts";
import * as wire from "../../server/schemas/orders.ts";
import { diffTerms, loosens as webLoosens, termsOfOrder } from "../../web/src/lib/orders/terms.ts";
import {
  checkRules,
  describeRules,
  EMPTY_RULES,
  needsSignature,
  requestFor,
  type RulesDraft,
} from "../../web/src/features/rules/rules.ts";
import {
  decidedElsewhere,
  paymentsOf,
  sampleOf,
  tighterOf,
  valueOf,
  widestOf,
} from "../helpers/settings.ts";
import signedBefore from "./policy-version-1.json" with { type: "json" };

/** The struct of each released version, which never changes. A release adds the line of a version that is new in it. */
const RELEASED = [
  "AgentPolicy(string agent,address wallet,uint256 version,string name,uint256 dailyLimit,uint256 weeklyLimit,uint256 monthlyLimit,uint256 perPaymentLimit,uint256 paymentsPerHour,string fetch,uint256 expiresAt,Payee[] payees,bytes32 nonce,uint256 deadline)Payee(address payee,string label,string site,uint256 dailyLimit,uint256 perPaymentLimit,uint256 expiresAt)",
  "AgentPolicy(string agent,address wallet,uint256 version,string name,uint256 dailyLimit,uint256 weeklyLimit,uint256 monthlyLimit,uint256 perPaymentLimit,uint256 paymentsPerHour,string fetch,uint256 expiresAt,Payee[] payees,uint256 channelHeld,uint256 channelDelay,uint256 documentVersion,bytes32 nonce,uint256 deadline)Payee(address payee,string label,string site,uint256 dailyLimit,uint256 perPaymentLimit,uint256 expiresAt,uint256 channelHeld)",
  "AgentPolicy(string agent,address wallet,uint256 version,string name,uint256 dailyLimit,uint256 weeklyLimit,uint256 monthlyLimit,uint256 perPaymentLimit,uint256 paymentsPerHour,string fetch,uint256 expiresAt,Payee[] payees,uint256 channelHeld,uint256 channelDelay,string payHours,string payDays,uint256 pauseAfterFailures,uint256 pauseAtRate,uint256 documentVersion,bytes32 nonce,uint256 deadline)Payee(address payee,string label,string site,uint256 dailyLimit,uint256 perPaymentLimit,uint256 expiresAt,uint256 channelHeld)",
  "AgentPolicy(string agent,address wallet,uint256 version,string name,uint256 dailyLimit,uint256 weeklyLimit,uint256 monthlyLimit,uint256 perPaymentLimit,uint256 paymentsPerHour,string fetch,uint256 expiresAt,Payee[] payees,uint256 channelHeld,uint256 channelDelay,string payHours,string payDays,uint256 pauseAfterFailures,uint256 pauseAtRate,uint256 pauseOnPriceJump,uint256 documentVersion,bytes32 nonce,uint256 deadline)Payee(address payee,string label,string site,uint256 dailyLimit,uint256 perPaymentLimit,uint256 expiresAt,uint256 channelHeld)",
];

const CHAIN_ID = 5_042_002;
const PAYEE_ADDRESS = "0x70997970c51812dc3a010c7d01b50e0d17dc79c8";
const SITE = "https://a.example";
const settings = (
  fields: readonly Field[],
  wireOf: (field: Field) => ReturnType<typeof sampleOf>,
) => Object.fromEntries(fields.map((field) => [field.member, valueOf(field, wireOf(field))]));
const rulesWith = (agent: object, payee: object = settings(PAYEE_FIELDS, sampleOf)): RulesInForce =>
  ({
    ...settings(AGENT_FIELDS, sampleOf),
    ...agent,
    status: "active",
    payees: [{ address: PAYEE_ADDRESS, label: "Shop", site: SITE, ...payee }],
  }) as unknown as RulesInForce;
const SET = rulesWith({});
const policyWith = (rules: RulesInForce): AgentPolicyOrder =>
  policyOrder({
    agentId: "agt_1",
    walletAddress: PAYEE_ADDRESS,
    version: 3,
    name: "a",
    rules,
    nonce: `0x${"ab".repeat(32)}`,
    deadlineSeconds: 99n,
  });

/** The same rules, with one setting widened or tightened. */
function changed(of: "agent" | "payee", field: Field, to: ReturnType<typeof sampleOf>) {
  const change = { [field.member]: valueOf(field, to) };
  return of === "agent"
    ? rulesWith(change)
    : rulesWith({}, { ...settings(PAYEE_FIELDS, sampleOf), ...change });
}

async function eachSetting(
  t: Test,
  work: (t: Test, of: "agent" | "payee", field: Field) => void | Promise<void>,
): Promise<void> {
  for (const field of AGENT_FIELDS) await t.test(field.name, async (t) => work(t, "agent", field));
  for (const field of PAYEE_FIELDS)
    await t.test(`payee's ${field.name}`, async (t) => work(t, "payee", field));
}

t.test("the documents of released versions", async (t) => {
  const structOf = (version: number): string =>
    Object.entries(policyTypes(version))
      .map(([struct, members]) => {
        const written = members.map(({ type, name }) => `${type} ${name}`);
        return `${struct}(${written.join(",")})`;
      })
      .join("");
  for (const [index, struct] of RELEASED.entries()) t.equal(structOf(index + 1), struct);
  t.ok(newestVersion() <= RELEASED.length + 1, "one release has one new version");
});

t.test("a version is written in one way, and one that is not known is refused", async (t) => {
  const unknown = { name: "PolicyVersionUnknown" };
  const next = String(newestVersion() + 1);
  t.equal(versionOf({}), 1);
  for (const documentVersion of ["1", "0", "01", "-1", "x", "", "1000000000", Number(next)])
    t.equal(versionOf({ documentVersion }), undefined, `${documentVersion}`);
  t.throws(() => versionOf({ documentVersion: next }), unknown);
  t.throws(() => versionOf({ documentVersion: "999999999" }), unknown);
  const { weeklyLimit: _weekly, ...without } = policyWith(SET);
  const read = rulesOfPolicy(without as AgentPolicyOrder);
  t.equal(read.weeklyLimitAtomic, null, "a setting that a document does not have is not set");
  t.throws(() => rulesOfPolicy({ ...policyWith(SET), documentVersion: "x" }), /malformed/);
});

t.test("a policy of version 1 that was signed before there were versions", async (t) => {
  const { digest, rulesDigest: sealed, signature, owner } = signedBefore;
  const order = readOrder("AgentPolicy", signedBefore.order as AgentPolicyOrder);
  if (!order) throw new Error("not read");
  t.equal(orderDigest("AgentPolicy", order, CHAIN_ID, "numbers"), digest);
  t.equal(hashTypedData(typedDataOf("AgentPolicy", order, CHAIN_ID, "numbers") as never), digest);
  t.equal(await recoverAddress({ hash: digest as Hex, signature: signature as Hex }), owner);
  t.equal(rulesDigest({ ...rulesOfPolicy(order), status: "active" }), sealed);
});

t.test("it is signed, and every value of it makes another document and another seal", (t) =>
  eachSetting(t, (t, of, field) => {
    const struct = of === "agent" ? "AgentPolicy" : "Payee";
    const names = policyTypes(newestVersion())[struct].map(({ name }) => name);
    t.ok(names.includes(field.name));
    const order = policyWith(SET);
    const other = changed(of, field, widestOf(field));
    const wider = policyWith(other);
    t.not(
      orderDigest("AgentPolicy", order, 1, REQUESTED_FORM),
      orderDigest("AgentPolicy", wider, 1, REQUESTED_FORM),
    );
    t.not(rulesDigest(SET), rulesDigest(other));
    for (const [rules, document] of [
      [SET, order],
      [other, wider],
    ] as const) {
      const read = readOrder("AgentPolicy", JSON.parse(JSON.stringify(document)) as typeof order);
      t.equal(
        rulesDigest({ ...rulesOfPolicy(read ?? order), status: "active" }),
        rulesDigest(rules),
      );
      t.equal(
        hashTypedData(typedDataOf("AgentPolicy", document, 1, REQUESTED_FORM) as never),
        orderDigest("AgentPolicy", document, 1, REQUESTED_FORM),
        "the wallet signs what the server checks",
      );
    }
    t.ok(versionFor(SET) >= field.since);
  }),
);

t.test("widening it needs a signature, tightening it does not", (t) =>
  eachSetting(t, (t, of, field) => {
    const [wider, tighter] = [widestOf(field), tighterOf(field)].map((value) =>
      changed(of, field, value),
    ) as [RulesInForce, RulesInForce];
    t.equal(loosens(SET, wider), true);
    t.equal(loosens(wider, SET), false);
    t.equal(loosens(SET, tighter), false);
    const terms = (rules: RulesInForce) => termsOfOrder({ ...policyWith(rules) });
    t.equal(webLoosens(terms(SET), terms(wider)), true, "the web app announces it");
    const changes = diffTerms(terms(SET), terms(wider));
    t.equal(changes.length, 1, "and shows it");
    t.match(changes[0]?.what, of === "agent" ? field.label : "Shop");
  }),
);

t.test("custody compares it with its column", (t) =>
  eachSetting(t, (t, of, field) => {
    const other = changed(of, field, widestOf(field));
    const text = (rules: RulesInForce): string =>
      of === "agent" ? columnsText("eip155:1", rules) : payeeText(rules.payees[0] as Payee);
    t.not(text(SET), text(other));
    if (of === "payee") return;
    for (const rules of [SET, other])
      t.equal(
        rulesDigest(readRules(columnsText("eip155:1", rules), [])),
        rulesDigest({ ...rules, payees: [] }),
      );
  }),
);

t.test("a setting that refuses a payment by itself is checked by custody too", async (t) => {
  const agent = settings(AGENT_FIELDS, widestOf);
  const unset = settings(PAYEE_FIELDS, widestOf);
  await eachSetting(t, (t, of, field) => {
    if (field.kind.refuses === undefined) {
      t.ok(decidedElsewhere(field), "test/helpers/settings.ts says who decides");
      return;
    }
    const { refused, allowed } = paymentsOf(field);
    const sample = { [field.member]: valueOf(field, sampleOf(field)) };
    const rules =
      of === "agent"
        ? rulesWith({ ...agent, ...sample }, unset)
        : rulesWith(agent, { ...unset, ...sample });
    const payment = { payee: PAYEE_ADDRESS, site: SITE } as const;
    t.same(coverOf(rules)({ ...payment, ...allowed }), { covered: true });
    t.same(coverOf(rules)({ ...payment, ...refused }), { covered: false, why: field.refusal });
    t.same(coverOf(rulesWith(agent, unset))({ ...payment, ...refused }), { covered: true });
    if (of === "payee") return;
    t.equal(refusesApproved(rules, refused), field.approvable !== true);
    t.equal(refusesApproved(rules, allowed), false);
  });
});

t.test("the sites of an agent are checked by custody too", async (t) => {
  const payment = {
    payee: PAYEE_ADDRESS,
    site: "https://b.example",
    valueAtomic: 1n,
    nowSeconds: 0n,
  } as const;
  const everywhere = { ...settings(PAYEE_FIELDS, widestOf), site: "" };
  const rules = (fetch: string) =>
    rulesWith({ ...settings(AGENT_FIELDS, widestOf), fetch }, everywhere);
  t.same(coverOf(rules("any"))(payment), { covered: true });
  t.same(coverOf(rules("sites"))(payment), { covered: false, why: AGENT.fetch.refusal });
});

t.test("a text that nobody can set is no document, or the tightest value", (t) =>
  eachSetting(t, (t, of, field) => {
    const { kind, name, member } = field;
    const sample = kind.sign(valueOf(field, sampleOf(field)));
    const texts = ["?", " ", "-1", "1.5", "0x1", "00", String(1n << 256n), "ANY", `${sample} `];
    const known = [widestOf(field), sampleOf(field), tighterOf(field)];
    for (const text of [...texts, `${sample}0`.repeat(99)]) {
      const document = policyWith(SET);
      const [payee] = document.payees;
      const changed = { ...(of === "agent" ? document : payee), [name]: text };
      const order = readOrder(
        "AgentPolicy",
        (of === "agent" ? changed : { ...document, payees: [changed] }) as AgentPolicyOrder,
      );
      if (kind.type === "uint256") {
        t.equal(order, undefined, text);
        continue;
      }
      if (order === undefined) throw new Error("not read");
      const read = rulesOfPolicy(order);
      const value = ((of === "agent" ? read : read.payees[0]) as Record<string, Value>)[member];
      for (const wire of known)
        t.equal(kind.allowsMore(value as Value, valueOf(field, wire)), false, text);
      if (kind.refuses)
        for (const payment of Object.values(paymentsOf(field)))
          t.equal(kind.refuses(value as Value, payment), true, text);
    }
  }),
);

const SHOW = {
  usdc: (atomic: bigint) => `<${atomic}>`,
  time: (seconds: bigint) => `at ${seconds}`,
};
const PACE = choice({ fast: "as fast as it can", slow: "slowly", never: "never" });

t.test("how a value is written, sent, typed and shown", async (t) => {
  const most = String((1n << 256n) - 1n);
  type Row = [kind: Kind<never, never>, value: Value, signed: string, wire: Wire, shown: string];
  const rows = [
    [AMOUNT, 1_500_000n, "1500000", "1.5", "<1500000> USDC"],
    [OPTIONAL_AMOUNT, 1n, "1", "0.000001", "<1> USDC"],
    [OPTIONAL_AMOUNT, 0n, "0", "0", "<0> USDC"],
    [OPTIONAL_AMOUNT, null, most, null, "no limit"],
    [COUNT, 7n, "7", 7, "7"],
    [COUNT, 0n, "0", 0, "0"],
    [COUNT, 1_000_000n, "1000000", 1_000_000, "1000000"],
    [COUNT, null, most, null, "no limit"],
    [TIME, 86_400n, "86400", "1970-01-02T00:00:00.000Z", "at 86400"],
    [TIME, 0n, "0", "1970-01-01T00:00:00.000Z", "at 0"],
    [TIME, 253_402_300_799n, "253402300799", "9999-12-31T23:59:59.000Z", "at 253402300799"],
    [TIME, null, most, null, "never"],
    [HELD, 1_500_000n, "1500000", "1.5", "<1500000> USDC"],
    [HELD, 0n, "0", "0", "none"],
    [OPTIONAL_HELD, 0n, "0", "0", "<0> USDC"],
    [OPTIONAL_HELD, null, most, null, "no limit of its own"],
    [DURATION, 900n, "900", 900, "15 minutes"],
    [DURATION, 901n, "901", 901, "901 seconds"],
    [DURATION, 3_600n, "3600", 3_600, "1 hour"],
    [DURATION, 5_400n, "5400", 5_400, "90 minutes"],
    [DURATION, 86_400n, "86400", 86_400, "1 day"],
    [DURATION, 90_000n, "90000", 90_000, "25 hours"],
    [DURATION, 2_592_000n, "2592000", 2_592_000, "30 days"],
    [PACE, "slow", "slow", "slow", "slowly"],
  ] as unknown as Row[];
  for (const [kind, value, signed, wire, shown] of rows) {
    const what = `${kind.name} ${value}`;
    t.equal(kind.sign(value as never), signed, what);
    t.equal(kind.readSigned(signed), value, what);
    t.equal(kind.wire(value as never), wire, what);
    t.same(kind.readWire(wire as never), { ok: true, value }, what);
    if (wire !== null) t.equal(kind.readTyped(String(wire)), wire, what);
    t.equal(kind.text(value as never, SHOW), shown, what);
  }
  t.same(TIME.readWire("1970-01-01T00:00:01.999Z"), { ok: true, value: 1n }, "never later");
  const unreadable = [
    [AMOUNT, "1.0000001", /decimals/],
    [OPTIONAL_AMOUNT, "x", /./],
    [COUNT, -1, /whole number of at most a million/],
    [COUNT, 1.5, /whole number/],
    [COUNT, 1_000_001, /whole number/],
    [TIME, "tomorrow", /RFC 3339/],
    [TIME, "1969-12-31T23:59:59.999Z", /RFC 3339/],
    [TIME, "+010000-01-01T00:00:00Z", /RFC 3339/],
    [HELD, "-1", /./],
    [DURATION, 899, /^must be a whole number of seconds from 900 to 2592000$/],
    [DURATION, 2_592_001, /whole number/],
    [DURATION, 1_000.5, /whole number/],
    [DURATION, "900", /whole number/],
    [DURATION, null, /whole number/],
    [PACE, "faster", /^must be one of fast, slow, never$/],
  ] as unknown as [Kind<never, never>, Wire, RegExp][];
  for (const [kind, wire, reason] of unreadable)
    t.match(kind.readWire(wire as never), { ok: false, reason }, `${kind.name} ${wire}`);
  t.equal(PACE.unset, "fast", "what was allowed before the setting existed");
  t.equal(PACE.readSigned("faster"), "never", "an unknown word is the tightest");
});

t.test("which value allows more, and which refuses a payment", async (t) => {
  const optional = [OPTIONAL_AMOUNT, COUNT, TIME] as unknown as Kind<bigint | null>[];
  for (const kind of optional) {
    for (const [wanted, current, expected] of [
      [2n, 1n, true],
      [1n, 1n, false],
      [0n, 1n, false],
      [null, 1n, true],
      [null, null, false],
      [1n, null, false],
    ] as const)
      t.equal(kind.allowsMore(wanted, current), expected, `${wanted} for ${current}`);
  }
  for (const kind of [AMOUNT, HELD, DURATION]) {
    t.equal(kind.allowsMore(2n, 1n), true);
    t.equal(kind.allowsMore(1n, 2n), false);
  }
  t.equal(HELD.unset, 0n, "no channels, as before the setting existed");
  t.equal(DURATION.unset, 86_400n);
  t.equal(AMOUNT.allowsMore(2n, 1n), true);
  t.equal(AMOUNT.allowsMore(1n, 1n), false);
  t.equal(PACE.allowsMore("fast", "slow"), true);
  t.equal(PACE.allowsMore("slow", "slow"), false);
  t.equal(PACE.allowsMore("never", "slow"), false);
  const payment = { valueAtomic: 5n, nowSeconds: 5n };
  for (const [value, refused] of [
    [4n, true],
    [5n, false],
  ] as const) {
    t.equal(AMOUNT.refuses?.(value, payment), refused);
    t.equal(OPTIONAL_AMOUNT.refuses?.(value, payment), refused);
  }
  t.equal(OPTIONAL_AMOUNT.refuses?.(null, payment), false);
  t.equal(TIME.refuses?.(5n, payment), true, "it has ended");
  t.equal(TIME.refuses?.(6n, payment), false);
  t.equal(TIME.refuses?.(null, payment), false);
  for (const kind of [HELD, OPTIONAL_HELD]) {
    t.equal(kind.refuses?.(0n, payment), false, "a payment without a channel");
    for (const [limit, depositAtomic, refused] of [
      [0n, 0n, true],
      [0n, 1n, true],
      [1n, 0n, false],
      [1n, 1n, false],
      [1n, 2n, true],
    ] as const)
      t.equal(
        kind.refuses?.(limit, { ...payment, depositAtomic }),
        refused,
        `a deposit of ${depositAtomic}, and a limit of ${limit}`,
      );
  }
  t.equal(OPTIONAL_HELD.refuses?.(null, { ...payment, depositAtomic: 9n }), false);
  t.equal(DURATION.refuses?.(900n, payment), false, "a payment without a channel");
  for (const [withdrawDelaySeconds, refused] of [
    [900n, false],
    [901n, true],
  ] as const)
    t.equal(DURATION.refuses?.(900n, { ...payment, withdrawDelaySeconds }), refused);
});

t.test("which change of status, payees and sites allows more", async (t) => {
  const terms = settings(PAYEE_FIELDS, sampleOf);
  const wide = settings(PAYEE_FIELDS, widestOf);
  const OTHER = "0x3c44cdddb6a900fa2b585dd299e03d12fa4293bc";
  const entry = (address: string, site: string, of: object = terms) => ({ address, site, ...of });
  const rules = (payees: object[], more: object = {}) =>
    ({ ...SET, fetch: "any", payees, ...more }) as RulesInForce;
  const status = (status: string) => rules([], { status });
  const cases: [string, RulesInForce, RulesInForce, boolean][] = [
    ["resumed", status("paused"), status("active"), true],
    ["paused", status("active"), status("paused"), false],
    ["archived", status("active"), status("archived"), false],
    ["archived, and paused again", status("archived"), status("paused"), true],
    ["archived, and active again", status("archived"), status("active"), true],
    ["still archived", status("archived"), status("archived"), false],
    ["a new payee", rules([]), rules([entry(OTHER, "")]), true],
    ["a payee less", rules([entry(OTHER, "")]), rules([]), false],
    [
      "the same in another spelling",
      rules([entry(OTHER, "")]),
      rules([entry(OTHER.toUpperCase().replace("0X", "0x"), "")]),
      false,
    ],
    [
      "everywhere instead of at a site",
      rules([entry(OTHER, SITE)]),
      rules([entry(OTHER, "")]),
      true,
    ],
    ["only at a site", rules([entry(OTHER, "")]), rules([entry(OTHER, SITE)]), false],
    [
      "wider terms at a site",
      rules([entry(OTHER, "")]),
      rules([entry(OTHER, ""), entry(OTHER, SITE, wide)]),
      true,
    ],
    [
      "tighter terms at a site are removed",
      rules([entry(OTHER, "", wide), entry(OTHER, SITE)]),
      rules([entry(OTHER, "", wide)]),
      true,
    ],
    [
      "wider terms at a site are removed",
      rules([entry(OTHER, ""), entry(OTHER, SITE, wide)]),
      rules([entry(OTHER, "")]),
      false,
    ],
    [
      "another site",
      rules([entry(OTHER, SITE)], { fetch: "sites" }),
      rules([entry(OTHER, ""), entry(OTHER, SITE), entry(OTHER, "https://b.example")], {
        fetch: "sites",
      }),
      true,
    ],
    [
      "a site for a payee that is allowed everywhere, any site",
      rules([entry(OTHER, "")], { fetch: "any" }),
      rules([entry(OTHER, ""), entry(OTHER, SITE)], { fetch: "any" }),
      false,
    ],
    [
      "the same, where only the payees' sites may be fetched",
      rules([entry(OTHER, "")], { fetch: "sites" }),
      rules([entry(OTHER, ""), entry(OTHER, SITE)], { fetch: "sites" }),
      true,
    ],
    [
      "at a site that another payee has",
      rules([entry(PAYEE_ADDRESS, SITE), entry(OTHER, "")], { fetch: "sites" }),
      rules([entry(PAYEE_ADDRESS, SITE), entry(OTHER, ""), entry(OTHER, SITE)], { fetch: "sites" }),
      false,
    ],
  ];
  for (const [what, current, wanted, expected] of cases)
    t.equal(loosens(current, wanted), expected, what);
  const listed = [
    entry(OTHER, "b"),
    entry(PAYEE_ADDRESS, ""),
    entry(OTHER, ""),
    entry(OTHER, "a"),
  ] as Payee[];
  t.same(
    sortPayees(listed).map(({ address, site }) => [address, site]),
    [
      [OTHER, ""],
      [OTHER, "a"],
      [OTHER, "b"],
      [PAYEE_ADDRESS, ""],
    ],
  );
  const widest = settings(AGENT_FIELDS, widestOf);
  const cover = coverOf(rules([entry(OTHER, SITE, wide)], { ...widest, fetch: "any" }));
  const at = { payee: OTHER, valueAtomic: 1n, nowSeconds: 0n } as const;
  t.same(cover({ ...at, site: SITE }), { covered: true });
  const onlySites = coverOf(rules([entry(OTHER, "", wide)], { ...widest, fetch: "sites" }));
  t.same(onlySites(at), { covered: true });
  t.match(onlySites({ ...at, site: "" }), { covered: false, why: /did not sign for this site/ });
  t.equal(payeeKey({ address: "0xAbC", site: SITE }), `0xabc ${SITE}`);
  t.match(cover(at), { covered: false, why: /different site, or not for direct payments/ });
  t.match(cover({ ...at, payee: PAYEE_ADDRESS, site: SITE }), {
    why: /did not sign for this payee/,
  });
});

t.test("the most of a day is the smallest limit over time", async (t) => {
  const limits = (dailyLimitAtomic: bigint, weekly: bigint | null, monthly: bigint | null) =>
    mostOfDay({
      ...SET,
      perPaymentLimitAtomic: 1n,
      dailyLimitAtomic,
      weeklyLimitAtomic: weekly,
      monthlyLimitAtomic: monthly,
      paymentsPerHour: 1n,
    });
  t.equal(limits(9n, null, null), 9n);
  t.equal(limits(9n, 8n, null), 8n);
  t.equal(limits(9n, 8n, 7n), 7n);
  t.equal(limits(6n, 8n, 7n), 6n);
});

/** The audit's verdicts on three entries: the signed policy, the agent that it creates, and a change without an order. */
function auditFaults(
  signed: RulesInForce,
  noted: RulesInForce,
  change: { action: string; before: object; after: object },
): (string | undefined)[] {
  const order = { ...policyWith(signed), version: "1" };
  const body = { agentId: order.agent, before: null } as unknown as EntryBody;
  const authority = new Authority();
  const after = {
    ...settingsOnWire(AGENT_FIELDS, noted),
    name: order.name,
    walletAddress: order.wallet,
    network: "eip155:1",
    status: "active",
    allowlist: noted.payees.map(payeeOnWire),
  };
  const proof = { kind: "AgentPolicy", digest: "0x1", order, chainId: 1 } as const;
  const policy = { version: 1, nonce: order.nonce };
  return [
    authority.faultOf({ ...body, action: "policy.signed", after: policy }, proof),
    authority.faultOf({ ...body, action: "agent.created", after }, undefined),
    authority.faultOf({ ...body, ...change } as EntryBody, undefined),
  ];
}
const payeeOnWire = ({ address, label, site, ...terms }: Payee) => ({
  address,
  label,
  site,
  ...settingsOnWire(PAYEE_FIELDS, terms),
});

t.test("the audit compares it with what the owner signed", (t) =>
  eachSetting(t, (t, of, field) => {
    const wider = changed(of, field, widestOf(field));
    const noted = (rules: RulesInForce): object =>
      of === "agent"
        ? { [field.name]: field.kind.wire(valueIn(rules, field)) }
        : payeeOnWire(rules.payees[0] as Payee);
    const change = (from: RulesInForce, to: RulesInForce) => ({
      action: of === "agent" ? "agent.updated" : "allowlist.changed",
      before: noted(from),
      after: noted(to),
    });
    const tighten = change(wider, SET);
    t.same(auditFaults(wider, wider, tighten), [undefined, undefined, undefined]);
    t.match(auditFaults(SET, wider, tighten)[1], /differs from its signed order/);
    t.match(auditFaults(SET, SET, change(SET, wider))[2], /it loosens the rules/);
    t.match(auditFaults(SET, SET, tighten)[2], /does not follow from the rules/);
  }),
);

t.test("the clients have it", async (t) => {
  for (const { name } of SELF_FIELDS)
    t.ok(name in AgentSelf.properties, `an agent reads its ${name}`);
  t.same(POLICY_TYPES, policyTypes(1), "`purser init` signs version 1");
});

t.test("requests, responses and orders have it", (t) =>
  eachSetting(t, (t, of, field) => {
    const [requests, responses, orders] =
      of === "agent"
        ? [[CreateAgentBody, UpdateAgentBody], [Agent], wire.AgentPolicyOrder]
        : [[AddAllowlistBody], [AllowlistEntry], wire.OrderPayee];
    for (const schema of [...requests, ...responses, orders])
      t.ok(field.name in (schema.properties as object), field.name);
  }),
);

t.test("the custody process gets it, and nothing that it does not know", async (t) => {
  const hash = `0x${"1".repeat(64)}`;
  const held = {
    agentId: "agt_1",
    address: PAYEE_ADDRESS,
    ownerAddress: PAYEE_ADDRESS,
    ownerChainId: 0,
    policyDigest: hash,
    rulesDigest: hash,
    revision: 1,
    kid: "own",
    wrappedDataKey: new Uint8Array(60),
    ciphertext: new Uint8Array(60),
  };
  const reseal = (wanted: object) => () =>
    assertCall("reseal", [held, { current: SET, wanted, signed: undefined }]);
  t.doesNotThrow(reseal(SET));
  await eachSetting(t, (t, of, field) => {
    const of1 = (member: object): object =>
      of === "agent"
        ? { ...SET, ...member }
        : { ...SET, payees: SET.payees.map((payee) => ({ ...payee, ...member })) };
    t.throws(reseal(of1({ [field.member]: 7.5 })), { name: "CustodyError" }, "of another type");
    if (field.since === 1)
      t.throws(reseal(of1({ [field.member]: undefined })), { name: "CustodyError" }, "missing");
    t.throws(reseal(of1({ newerSetting: 1n })), { code: "policy_version_unknown" });
  });
});

t.test("the form has it, sends it and describes it", async (t) => {
  const empty: RulesDraft = {
    ...EMPTY_RULES,
    name: "a",
    dailyLimit: "1000000",
    allowlist: [{ address: PAYEE_ADDRESS, label: "" }],
  };
  for (const field of AGENT_FIELDS) {
    t.ok(field.name in EMPTY_RULES, field.name);
    const filled = { ...empty, [field.name]: String(sampleOf(field)) };
    t.same(requestFor(empty, filled), { [field.name]: sampleOf(field) }, field.name);
    // Not set, the most that may be held is 0.
    const isTightest = field.name === "channelHeld";
    t.equal(needsSignature(filled, empty), !isTightest, `removing ${field.name}`);
    t.equal(needsSignature(empty, filled), isTightest, `setting ${field.name}`);
    t.not(describeRules(filled).join(" "), describeRules(empty).join(" "), field.name);
    t.same(checkRules(filled, 0), {}, field.name);
  }
  for (const field of PAYEE_FIELDS) {
    const entry = { address: PAYEE_ADDRESS, label: "", [field.name]: String(sampleOf(field)) };
    t.same(requestFor(empty, { ...empty, allowlist: [entry] }), { allowlist: [{ ...entry }] });
  }
});

t.test("the rule of a setting is lifted by an approval in both, or in none", async (t) => {
  const sets = RULES.flatMap(({ field, otherFields = [], liftable }) =>
    [...(field ? [field] : []), ...otherFields].map(({ of, name }) => ({ of, name, liftable })),
  );
  for (const { of, name: wanted, liftable } of sets) {
    const fields = of === "payee" ? PAYEE_FIELDS : AGENT_FIELDS;
    const setting = fields.find(({ name }) => name === wanted);
    if (setting) t.equal(setting.approvable === true, liftable === true, setting.name);
  }
  const names = (wanted: "payee" | undefined) =>
    sets.flatMap(({ of, name }) => (of === wanted ? [name] : []));
  for (const [fields, named] of [
    [AGENT_FIELDS, names(undefined)],
    [PAYEE_FIELDS, names("payee")],
  ] as const)
    for (const { name } of fields) t.ok(named.includes(name), `a rule has the setting ${name}`);
});
