// Goal: the digest of a policy document of the next version is the one that a wallet signs, whatever its members contain.
// Own process (it adds settings to the tables of rules).
import * as fc from "fast-check";
import t from "tap";
import { hashTypedData } from "viem";
import { AGENT_FIELDS, PAYEE_FIELDS } from "../../packages/rules/src/fields.ts";
import { OPTIONAL_AMOUNT } from "../../packages/rules/src/kinds.ts";
import {
  policyTypes,
  rulesDocument,
  versionFor,
  type AgentPolicyOrder,
} from "../../packages/rules/src/policy.ts";
import { orderDigest, readOrder, rulesOfPolicy, typedDataOf } from "../../server/core/orders.ts";
import { rulesDigest, type RulesInForce } from "../../server/core/rules.ts";
import { halt } from "../helpers/newer-setting.ts";
import signedBefore from "./policy-version-1.json" with { type: "json" };

// `halt` is a text of the agent; this is a number of a payee.
PAYEE_FIELDS.push({
  name: "hourlyLimit",
  member: "hourlyLimitAtomic",
  kind: OPTIONAL_AMOUNT,
  since: halt.since,
  column: "hourly_limit",
  label: "Hourly limit",
  help: "",
  refusal: "it is above the payee's limit",
  describe: (text) => `${text} an hour`,
});

const text = fc.string({ unit: "binary", maxLength: 40 });
const number = fc.bigInt({ min: 0n, max: 2n ** 256n - 1n }).map(String);
const hex = (bytes: number) =>
  fc
    .uint8Array({ minLength: bytes, maxLength: bytes })
    .map((some) => `0x${Buffer.from(some).toString("hex")}`);
const OF_TYPE = { string: text, uint256: number, address: hex(20), bytes32: hex(32) };

/** The struct that a wallet must be shown, written here a second time. */
const PAYEE_MEMBERS = [
  ["address", "payee"],
  ["string", "label"],
  ["string", "site"],
  ["uint256", "dailyLimit"],
  ["uint256", "perPaymentLimit"],
  ["uint256", "expiresAt"],
  ["uint256", "channelHeld"],
  ["uint256", "hourlyLimit"],
] as const;
const BEFORE_PAYEES = [
  ["string", "agent"],
  ["address", "wallet"],
  ["uint256", "version"],
  ["string", "name"],
  ["uint256", "dailyLimit"],
  ["uint256", "weeklyLimit"],
  ["uint256", "monthlyLimit"],
  ["uint256", "perPaymentLimit"],
  ["uint256", "paymentsPerHour"],
  ["string", "fetch"],
  ["uint256", "expiresAt"],
] as const;
/** The settings of later versions: test/unit/settings.test.ts has those that are released. `halt` is the last. */
const AFTER_PAYEES: [type: keyof typeof OF_TYPE, name: string][] = [
  ...AGENT_FIELDS.filter(({ since }) => since > 1).map(
    ({ kind, name }): [keyof typeof OF_TYPE, string] => [kind.type, name],
  ),
  ["uint256", "documentVersion"],
  ["bytes32", "nonce"],
  ["uint256", "deadline"],
];
type Member = readonly [type: string, name: string];
const members = (list: readonly Member[]) => list.map(([type, name]) => ({ name, type }));
const TYPES = {
  EIP712Domain: members([
    ["string", "name"],
    ["string", "version"],
    ["uint256", "chainId"],
  ]),
  AgentPolicy: members([...BEFORE_PAYEES, ["Payee[]", "payees"], ...AFTER_PAYEES]),
  Payee: members(PAYEE_MEMBERS),
};

const valuesOf = (list: readonly (readonly [keyof typeof OF_TYPE, string])[]) =>
  fc.record(Object.fromEntries(list.map(([type, name]) => [name, OF_TYPE[type]])));
const documents = fc
  .tuple(
    valuesOf([...BEFORE_PAYEES, ...AFTER_PAYEES]),
    fc.array(valuesOf(PAYEE_MEMBERS), { maxLength: 3 }),
  )
  .map(([values, payees]) => {
    return { ...values, payees, documentVersion: String(halt.since) } as unknown as Document;
  });
type Document = AgentPolicyOrder & { halt: string };

t.test("every document has the digest that a wallet signs", async (t) => {
  fc.assert(
    fc.property(documents, fc.integer({ min: 1, max: 2 ** 40 }), (document, chainId) => {
      const order = readOrder("AgentPolicy", document);
      if (!order) throw new Error("not read");
      const shown = {
        types: TYPES,
        primaryType: "AgentPolicy",
        domain: { name: "Purser", version: "2", chainId },
        message: document,
      };
      const wallets = hashTypedData(shown as never);
      if (orderDigest("AgentPolicy", order, chainId, "numbers") !== wallets)
        throw new Error("ours");
      const asked = hashTypedData(typedDataOf("AgentPolicy", order, chainId, "numbers") as never);
      if (asked !== wallets) throw new Error("the wallet's request");
    }),
    { numRuns: 200 },
  );
  t.pass();
});

t.test("a change of any member gives another digest", async (t) => {
  fc.assert(
    fc.property(documents, documents, fc.nat(), (document, other, choice) => {
      const names = Object.keys(document).filter((name) => name !== "documentVersion");
      const name = names[choice % names.length] as keyof Document;
      const changed = { ...document, [name]: other[name] };
      const [one, two] = [document, changed].map((wire) => {
        const order = readOrder("AgentPolicy", wire);
        if (!order) throw new Error("not read");
        return {
          digest: orderDigest("AgentPolicy", order, 1, "numbers"),
          text: JSON.stringify(order),
        };
      });
      return (one?.digest === two?.digest) === (one?.text === two?.text);
    }),
    { numRuns: 300 },
  );
  t.pass();
});

t.test("a document without a member of its version, or of another version, is none", async (t) => {
  const [document] = fc.sample(documents, 1);
  if (!document) throw new Error("none");
  const { halt: _halt, ...without } = document;
  t.equal(readOrder("AgentPolicy", without), undefined);
  t.throws(
    () => readOrder("AgentPolicy", { ...document, documentVersion: String(halt.since + 1) }),
    { name: "PolicyVersionUnknown" },
  );
});

t.test("rules that need no newer setting stay those of version 1", async (t) => {
  const rules = rulesOfPolicy(signedBefore.order);
  const [payee] = rules.payees;
  if (!payee) throw new Error("no payee");
  t.equal(rulesDigest({ ...rules, status: "active" }), signedBefore.rulesDigest);
  const needed = (more: object) => {
    const wanted = { ...rules, ...more } as RulesInForce;
    const { documentVersion } = rulesDocument(wanted, (address) => address);
    return [versionFor(wanted), documentVersion];
  };
  t.same(needed({}), [1, undefined]);
  t.same(needed({ payees: [] }), [1, undefined]);
  t.same(needed({ halt: "all" }), [halt.since, String(halt.since)]);
  t.same(needed({ halt: "all", payees: [] }), [halt.since, String(halt.since)]);
  t.same(needed({ payees: [payee, { ...payee, hourlyLimitAtomic: 1n }] }), [
    halt.since,
    String(halt.since),
  ]);
});

t.test("settings are signed by their age, wherever the table has them", async (t) => {
  const newest = halt.since + 1;
  PAYEE_FIELDS.unshift({
    name: "newest",
    member: "newestAtomic",
    kind: OPTIONAL_AMOUNT,
    since: newest,
    column: "newest",
    label: "Newest",
    help: "",
    refusal: "",
    describe: (text) => text,
  });
  t.same(
    policyTypes(newest).Payee.map(({ name }) => name),
    [...PAYEE_MEMBERS.map(([, name]) => name), "newest"],
  );
  PAYEE_FIELDS.shift();
});
