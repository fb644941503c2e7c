// Goal: the signature of a team counts distinct members of the list in force whose role allows what is signed; lists that do not
// follow from each other, rows that somebody put back, and texts spelled in another way open nothing.
import { randomBytes } from "node:crypto";
import * as fc from "fast-check";
import t from "tap";
import { getAddress, toHex, zeroAddress, type Address, type Hex } from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { agentsText, loosensBudget } from "../../packages/rules/src/budgets.ts";
import { orderDigest, type MembersOrder, type Orders } from "../../server/core/orders.ts";
import { passkeyPlaces } from "../../server/core/passkey-places.ts";
import { PASSKEYS_CHAIN } from "../../server/core/passkeys.ts";
import {
  addressOfTeam,
  faultOfMembers,
  listOf,
  MAX_MEMBERS,
  newlyNamed,
  progressOf,
  purposeOf,
  readTeamSignature,
  signersFor,
  TEAMS_CHAIN,
  writeTeamSignature,
  type MemberList,
  type Purpose,
  type Role,
} from "../../server/core/teams.ts";
import { OwnerSignatures, type StoredOrder } from "../../server/plugins/orders/signatures.ts";
import { testPasskey } from "../helpers/passkey.ts";

const CHAIN_ID = 1337;
const PAGE = "https://purser.example.com";
const FORM = "readable";

interface Person {
  address: Address;
  chainId: number;
  sign(hash: Hex): Promise<Hex>;
}
function withKey(): Person {
  const account = privateKeyToAccount(generatePrivateKey());
  const address = account.address.toLowerCase() as Address;
  return { address, chainId: 0, sign: (hash) => account.sign({ hash }) };
}
function withPasskey(): Person {
  const passkey = testPasskey(PAGE);
  const { address } = passkey;
  return { address, chainId: PASSKEYS_CHAIN, sign: async (digest) => passkey.signHash(digest) };
}

const sign = async (digest: Hex, ...people: Person[]): Promise<Hex> =>
  writeTeamSignature(
    await Promise.all(
      people.map(async (one) => ({ address: one.address, signature: await one.sign(digest) })),
    ),
  ) as Hex;

type Named = [Person, Role];
interface Wanted {
  owner?: Address;
  version: number;
  threshold?: number;
  approvalAbove?: bigint;
  members: Named[];
}
async function list(wanted: Wanted, ...by: Person[]): Promise<StoredOrder> {
  const document: MembersOrder = {
    owner: getAddress(wanted.owner ?? zeroAddress),
    version: String(wanted.version),
    name: "Team",
    threshold: String(wanted.threshold ?? 1),
    approvalAbove: String(wanted.approvalAbove ?? 0n),
    members: wanted.members.map(([{ address, chainId }, role]) => ({
      name: "x",
      account: getAddress(address),
      chain: String(chainId),
      role,
    })),
    nonce: toHex(randomBytes(32)),
    deadline: "1800000000",
  };
  const digest = orderDigest("Members", document, CHAIN_ID, FORM);
  return { document, digest, signature: await sign(digest, ...by), chainId: CHAIN_ID };
}

const rows = { orders: [] as StoredOrder[] };
const fresh = () =>
  new OwnerSignatures({
    chains: { byChainId: () => undefined, verified: new Set() } as never,
    places: passkeyPlaces(PAGE),
    listsOf: async () => ({ count: 0, next: [] }),
    membersOf: async (_owner, known) => ({
      count: rows.orders.length,
      next: rows.orders.slice(known),
    }),
  });

const hash = toHex(randomBytes(32));
const [ada, bob, cleo, dan] = [withKey(), withPasskey(), withKey(), withKey()] as const;
const first = await list({ version: 1, members: [[ada, "admin"]] }, ada);
const team = { address: addressOfTeam(first.digest), chainId: TEAMS_CHAIN };
const own = { owner: team.address };
const second: Wanted = {
  ...own,
  version: 2,
  threshold: 2,
  approvalAbove: 50n,
  members: [
    [ada, "admin"],
    [bob, "admin"],
    [cleo, "approver"],
    [dan, "viewer"],
  ],
};
const whole = [first, await list(second, ada, bob, cleo)];
const verdict = async (orders: StoredOrder[], by: Person[], purpose?: Purpose, at = team) => {
  rows.orders = orders;
  return fresh().isSigned(at, { hash, signature: await sign(hash, ...by), purpose });
};
const approval = (amountAtomic: bigint): Purpose => ({ kind: "approval", amountAtomic });

t.test("who signs for a team", async (t) => {
  t.equal(await verdict([first], [ada]), "valid", "its maker");
  t.equal(await verdict(whole, [ada, bob]), "valid", "two admins, one with a passkey");
  t.equal(await verdict(whole, [ada]), "invalid", "one of two");
  t.equal(await verdict(whole, [ada, cleo]), "invalid", "an approver is no admin");
  t.equal(await verdict(whole, [ada, bob, dan]), "invalid", "a viewer signs nothing");
  t.equal(await verdict(whole, [cleo], approval(50n)), "valid", "a small payment");
  t.equal(await verdict(whole, [cleo], approval(51n)), "invalid", "a larger one");
  t.equal(await verdict(whole, [cleo, bob], approval(51n)), "valid");
  t.equal(await verdict(whole, [dan], approval(1n)), "invalid");
  const other = { ...team, address: ada.address };
  t.equal(await verdict(whole, [ada, bob], undefined, other), "invalid", "another team");
  const alone = { hash, signature: await ada.sign(hash) };
  t.equal(await fresh().isSigned(team, alone), "invalid", "a member's bare signature");
  const nested = writeTeamSignature([
    { address: ada.address, signature: await sign(hash, ada) },
    { address: bob.address, signature: await bob.sign(hash) },
  ]) as Hex;
  t.equal(await fresh().isSigned(team, { hash, signature: nested }), "invalid", "a team within");
});

t.test("lists that do not follow from each other", async (t) => {
  const wrong = async (what: string, wanted: Wanted, ...by: Person[]) =>
    t.equal(await verdict([first, await list(wanted, ...by)], [ada, bob]), "invalid", what);
  await wrong("not accepted by the new admin", second, ada, cleo);
  await wrong("not accepted by the new approver", second, ada, bob);
  await wrong("not signed by the admin before", second, bob, cleo);
  await wrong("of another team", { ...second, owner: ada.address }, ada, bob, cleo);
  await wrong("out of order", { ...second, version: 3 }, ada, bob, cleo);
  await wrong("more signatures than admins", { ...second, threshold: 3 }, ada, bob, cleo);
  const asTeam: Person = { ...cleo, chainId: TEAMS_CHAIN };
  await wrong(
    "a team as a member",
    { ...second, members: [...second.members.slice(0, 2), [asTeam, "viewer"]] },
    ada,
    bob,
  );
  const forged = await list({ version: 1, members: [[dan, "admin"]] }, dan);
  t.equal(await verdict([forged], [dan]), "invalid", "another first list");
  const [, good] = whole as [StoredOrder, StoredOrder];
  const document = { ...(good.document as object), threshold: "1" };
  t.equal(await verdict([first, { ...good, document }], [ada]), "invalid", "an edited row");

  const third = await list(
    {
      ...second,
      version: 3,
      members: [
        [bob, "admin"],
        [cleo, "admin"],
      ],
    },
    ada,
    bob,
  );
  t.equal(await verdict([...whole, third], [bob, cleo]), "valid");
  t.equal(await verdict([...whole, third], [ada, bob]), "invalid", "ada was removed");
  rows.orders = [...whole, third];
  const signatures = fresh();
  const byOld = { hash, signature: await sign(hash, ada, bob) };
  t.equal(await signatures.isSigned(team, byOld, "ever"), "valid", "what they signed stays signed");
  t.equal(await signatures.isSigned(team, byOld), "invalid");
  rows.orders = whole;
  t.equal(await signatures.isSigned(team, byOld), "invalid", "older rows were put back");
});

const person = (index: number): Address => `0x${index.toString(16).padStart(40, "0")}`;
const named = (index: number, role = "admin", chain: bigint | number = 0) => ({
  name: `Person ${index}`,
  account: person(index),
  chain: String(chain),
  role,
});
const orderOf = (members: MembersOrder["members"], threshold = 1): MembersOrder => ({
  owner: zeroAddress,
  version: "7",
  name: "Team",
  threshold: String(threshold),
  approvalAbove: "50",
  members,
  nonce: "0x",
  deadline: "1",
});

t.test("the list in force", async (t) => {
  const signatures = fresh();
  const inForce = async (orders: StoredOrder[], of = signatures) => {
    rows.orders = orders;
    return (await of.teams.listInForce(team))?.version;
  };
  const byAda = { hash, signature: await sign(hash, ada) };
  t.equal(await inForce([], fresh()), undefined, "no list");
  t.equal(await fresh().isSigned(team, byAda, "ever"), "invalid");
  t.equal(await inForce(whole), 2, "the newest");
  t.equal(await inForce(whole), 2, "again, from what is known");
  t.equal(await inForce([first]), undefined, "a list is gone: old rows were put back");

  // A later list that does not hold ends what the one before permits, also for what was signed then.
  const broken = { ...(await list(second, ada, bob, cleo)), signature: "0x" as Hex };
  const unaccepted = await list(second, ada, cleo);
  for (const wrong of [broken, unaccepted]) {
    t.equal(await inForce([first, wrong], fresh()), undefined);
    t.equal(await fresh().isSigned(team, byAda, "ever"), "invalid");
  }
  const ofAnother = await list({ owner: ada.address, version: 1, members: [[ada, "admin"]] }, ada);
  const itself = { address: addressOfTeam(ofAnother.digest), chainId: TEAMS_CHAIN };
  t.equal(
    await verdict([ofAnother], [ada], undefined, itself),
    "invalid",
    "a first list of a team",
  );

  const counting = (count: number) =>
    new OwnerSignatures({
      chains: { byChainId: () => undefined, verified: new Set() } as never,
      places: passkeyPlaces(PAGE),
      listsOf: async () => ({ count: 0, next: [] }),
      membersOf: async () => ({ count, next: [first] }),
    });
  t.equal(await inForce([], counting(1_000)), 1);
  t.equal(await inForce([], counting(1_001)), undefined, "more than anybody makes are not read");
});

t.test("what is wrong with a list of members", (t) => {
  const many = (count: number) => Array.from({ length: count }, (_, index) => named(index + 1));
  const before = listOf(
    orderOf([named(1), named(2, "approver"), named(3, "viewer"), named(4, "viewer")]),
  );
  const letters: Address = `0x${"a".repeat(40)}`;
  const cases: [fault: string | undefined, MembersOrder["members"], number?, MemberList?][] = [
    ["has no members", []],
    [undefined, many(MAX_MEMBERS)],
    ["has more than 50 members", many(MAX_MEMBERS + 1)],
    ["names a member twice", [named(1), named(2), named(1, "viewer", PASSKEYS_CHAIN)]],
    [
      "names a member twice",
      [
        { ...named(1), account: letters },
        { ...named(2), account: getAddress(letters) },
      ],
    ],
    ["names the zero address", [named(1), named(0, "viewer")]],
    ["has the unknown role owner", [named(1), named(2, "owner")]],
    ["names a team as a member", [named(1), named(2, "viewer", TEAMS_CHAIN)]],
    [undefined, [named(1), named(2, "viewer", PASSKEYS_CHAIN)]],
    ["has an unknown chain", [named(1), named(2, "viewer", PASSKEYS_CHAIN + 1)]],
    [undefined, [named(1), named(2, "viewer", 8453)]],
    [
      "names a contract account as approver or admin: it can only be a viewer",
      [named(1), named(2, "approver", 8453)],
    ],
    [
      "names a contract account as approver or admin: it can only be a viewer",
      [named(1), named(2, "admin", 8453)],
    ],
    [undefined, [named(1), named(2, "approver", PASSKEYS_CHAIN)]],
    [undefined, [named(1), named(2, "approver"), named(3, "admin", PASSKEYS_CHAIN)], 2, before],
    [
      "changes what kind of account a member has",
      [named(1), named(2, "viewer", PASSKEYS_CHAIN)],
      1,
      before,
    ],
    [undefined, [named(1), named(5, "approver", PASSKEYS_CHAIN)], 1, before],
    ["has no admin", [named(1, "approver"), named(2, "viewer")]],
    ["needs at least one signature", [named(1)], 0],
    [undefined, [named(1), named(2)], 2],
    [
      "needs the signatures of 2 admins, and has 1",
      [named(1), named(2, "approver"), named(3, "viewer")],
      2,
    ],
  ];
  for (const [fault, members, threshold, known] of cases)
    t.equal(faultOfMembers(orderOf(members, threshold), known), fault, fault ?? "sound");
  t.end();
});

t.test("what an order needs from a team", (t) => {
  const order = orderOf([named(1), named(2, "approver", PASSKEYS_CHAIN), named(3, "viewer")]);
  const list = listOf(order);
  const [ada, bob, cleo] = [
    { name: "Person 1", address: person(1), chainId: 0, role: "admin" },
    { name: "Person 2", address: person(2), chainId: PASSKEYS_CHAIN, role: "approver" },
    { name: "Person 3", address: person(3), chainId: 0, role: "viewer" },
  ] as const;
  t.same(list, {
    version: 7,
    name: "Team",
    threshold: 1,
    approvalAboveAtomic: 50n,
    members: [ada, bob, cleo],
  });
  t.same(purposeOf("Members", order), { kind: "members", next: list });
  t.same(purposeOf("ApprovePayment", { maxAmount: "9" } as Orders["ApprovePayment"]), {
    kind: "approval",
    amountAtomic: 9n,
  });
  t.same(purposeOf("Resume", {} as Orders["Resume"]), { kind: "rules" });

  const more = listOf(
    orderOf([
      named(1),
      named(2, "admin", PASSKEYS_CHAIN),
      named(3, "approver"),
      named(4),
      named(5, "viewer"),
    ]),
  );
  const [, , newCleo, dan] = more.members;
  t.same(newlyNamed(list, more), [newCleo, dan], "one was a viewer");
  t.same(newlyNamed(undefined, list), [ada, bob], "all of the first list");
  t.same(signersFor(list, { kind: "rules" }), [ada]);
  t.same(signersFor(list, approval(1n)), [ada, bob]);
  const members: Purpose = { kind: "members", next: more };
  t.same(signersFor(list, members), [ada, newCleo, dan]);
  t.same(signersFor(undefined, { kind: "members", next: list }), [ada, bob], "the first list");
  t.same(signersFor(undefined, { kind: "rules" }), []);
  t.same(signersFor(undefined, approval(1n)), [], "nobody before the first list");
  const promoted: Purpose = { kind: "members", next: listOf(orderOf([named(1), named(2)])) };
  t.same(signersFor(list, promoted), [ada], "an approver becomes an admin without a signature");

  const progress = (purpose: Purpose, signed: number[], of: MemberList | undefined = list) =>
    progressOf(of, purpose, new Set(signed.map(person)));
  const two = { ...list, threshold: 2 };
  t.same(progress({ kind: "rules" }, [2, 3, 9]), {
    isEnough: false,
    collected: [],
    needed: 1,
    missing: [],
  });
  t.same(progress({ kind: "rules" }, [1, 2], two), {
    isEnough: false,
    collected: [person(1)],
    needed: 2,
    missing: [],
  });
  t.same(progress(approval(50n), [2], two), {
    isEnough: true,
    collected: [person(2)],
    needed: 1,
    missing: [],
  });
  t.same(progress(approval(51n), [2], two), {
    isEnough: false,
    collected: [person(2)],
    needed: 2,
    missing: [],
  });
  t.same(progress(members, [1, 4]), {
    isEnough: false,
    collected: [person(1), person(4)],
    needed: 3,
    missing: [person(3)],
  });
  t.same(progress(members, [3, 4]), {
    isEnough: false,
    collected: [person(3), person(4)],
    needed: 3,
    missing: [],
  });
  const start: Purpose = { kind: "members", next: list };
  t.same(progressOf(undefined, start, new Set([person(1), person(2)])), {
    isEnough: true,
    collected: [person(1), person(2)],
    needed: 2,
    missing: [],
  });
  t.same(progressOf(undefined, approval(1n), new Set()).needed, 0);
  t.end();
});

t.test("which change loosens a budget", (t) => {
  const limits = { dailyLimit: 5n, weeklyLimit: 6n, monthlyLimit: null };
  for (const [what, change, loosens] of [
    ["nothing", {}, false],
    ["lower", { dailyLimit: 4n, weeklyLimit: 0n }, false],
    ["one more limit", { monthlyLimit: 1_000n }, false],
    ["one higher", { dailyLimit: 4n, weeklyLimit: 7n }, true],
    ["the daily one higher", { dailyLimit: 6n }, true],
    ["one dropped", { dailyLimit: null }, true],
    ["one lower, another dropped", { dailyLimit: 1n, weeklyLimit: null, monthlyLimit: 1n }, true],
  ] as const)
    t.equal(loosensBudget(limits, { ...limits, ...change }), loosens, what);
  t.equal(loosensBudget({ ...limits, monthlyLimit: 9n }, limits), true, "the monthly one dropped");
  const ids = Object.freeze(["b", "c", "a"]);
  t.equal(agentsText(ids), "a, b, c");
  t.end();
});

t.test("a text has one spelling", (t) => {
  const pair = (address: Address) => ({ address, signature: "0x1234" });
  const low: Address = `0x${"a".repeat(40)}`;
  const text = writeTeamSignature([pair(`0x${"b".repeat(40)}`), pair(low)]);
  t.equal(readTeamSignature(text)?.length, 2);
  t.equal(readTeamSignature(text.toUpperCase().replace("0X", "0x"))?.[0]?.address, low);
  t.equal(readTeamSignature(`${text}${text.slice(12)}`), undefined, "the same members again");
  t.equal(readTeamSignature(text.slice(0, -2)), undefined, "cut");
  t.equal(readTeamSignature(`${text}00`), undefined, "more behind it");
  t.equal(readTeamSignature("0x7465616d31"), undefined, "nobody");
  t.same(
    readTeamSignature(writeTeamSignature([pair(low), pair(getAddress(low))])),
    [pair(low)],
    "one member under two spellings is one",
  );
  const some = (count: number, signature = "0x12") =>
    Array.from({ length: count }, (_, index) => ({ address: person(index + 1), signature }));
  for (const right of [some(1), some(2 * MAX_MEMBERS), some(2, `0x${"ab".repeat(1_024)}`)])
    t.same(readTeamSignature(writeTeamSignature(right.toReversed())), right);
  const tooMany = writeTeamSignature(some(2 * MAX_MEMBERS + 1));
  t.equal(readTeamSignature(tooMany), undefined, "more than two lists have");
  t.equal(
    readTeamSignature(writeTeamSignature([{ address: low, signature: "0xABCD" }]))?.[0]?.signature,
    "0xabcd",
  );
  for (const signature of ["0x", "0x123", "0xzz", "0x12zz", "0xzz12"])
    t.throws(() => writeTeamSignature([{ address: low, signature }]), /whole bytes/, signature);
  const twice = [low, getAddress(low)].map((address, index) => ({
    address,
    signature: `0x0${index}`,
  }));
  t.same(readTeamSignature(writeTeamSignature(twice)), [twice[0]], "the first one counts");
  const long = `0x${"ab".repeat(0x10000)}`;
  t.throws(() => writeTeamSignature([{ address: low, signature: long }]), /too long/);
  const one = writeTeamSignature([pair(low)]);
  for (const [what, wrong] of [
    ["another kind of text", one.replace("7465616d31", "7465616d32")],
    ["half a byte", one.slice(0, -1)],
    ["no digits", `${one.slice(0, -2)}zz`],
    ["no digits before it", one.replace("aa", "zz")],
    ["a signature of no bytes", `${one.slice(0, 12 + 40)}0000`],
    ["no length", one.slice(0, 12 + 40)],
    ["half a length", one.slice(0, 12 + 42)],
    ["half an address", one.slice(0, 12 + 20)],
    ["a second one of no bytes", `${one}${"b".repeat(40)}0000`],
    ["one member twice", `${one}${one.slice(12)}`],
    ["addresses that descend", `${one}${"9".repeat(40)}000112`],
  ] as const)
    t.equal(readTeamSignature(wrong), undefined, what);
  t.end();
});

t.test("the count agrees with a simple model", (t) => {
  const people = Array.from({ length: 8 }, (_, index) => `0x${String(index).repeat(40)}`);
  const roles = fc.array(fc.constantFrom<Role | null>("viewer", "approver", "admin", null), {
    minLength: 8,
    maxLength: 8,
  });
  const listOf = (chosen: (Role | null)[], threshold: number): MemberList => ({
    version: 1,
    name: "",
    threshold,
    approvalAboveAtomic: 10n,
    members: chosen.flatMap((role, index) =>
      role ? [{ name: "", address: people[index] ?? "", chainId: 0, role }] : [],
    ),
  });
  const threshold = fc.integer({ min: 1, max: 4 });
  const signers = fc.uniqueArray(fc.constantFrom(...people));
  const amount = fc.option(fc.bigInt({ min: 0n, max: 20n }), { nil: undefined });
  fc.assert(
    fc.property(roles, roles, threshold, signers, amount, (before, after, needed, signed, paid) => {
      const now = listOf(before, needed);
      const has = (index: number) => signed.includes(people[index] ?? "");
      const votes = (...allowed: (Role | null)[]) =>
        before.filter((role, index) => allowed.includes(role) && has(index)).length;
      const decides = (role: Role | null | undefined) => role === "admin" || role === "approver";
      const accepted = after.every(
        (role, index) => !decides(role) || decides(before[index]) || has(index),
      );
      const enoughAdmins = votes("admin") >= needed;
      const of = (purpose: Purpose) => progressOf(now, purpose, new Set(signed)).isEnough;
      const byApprovers =
        votes("admin", "approver") >= (paid !== undefined && paid <= 10n ? 1 : needed);
      return (
        of({ kind: "rules" }) === enoughAdmins &&
        of({ kind: "members", next: listOf(after, needed) }) === (enoughAdmins && accepted) &&
        (paid === undefined || of(approval(paid)) === byApprovers)
      );
    }),
    { numRuns: 2_000 },
  );
  t.end();
});
