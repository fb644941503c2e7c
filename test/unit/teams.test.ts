// Goal: the signature of a team counts distinct members of the list in force whose role allows what is signed; lists that do not
// follow from each other, rows that somebody put back, and texts spelled in another way open nothing.
import { randomBytes } from "node:crypto";
import * as fc from "fast-check";
import t from "tap";
import { getAddress, toHex, zeroAddress, type Address, type Hex } from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { orderDigest, type MembersOrder } from "../../server/core/orders.ts";
import { passkeyPlaces } from "../../server/core/passkey-places.ts";
import { PASSKEYS_CHAIN } from "../../server/core/passkeys.ts";
import {
  addressOfTeam,
  progressOf,
  readTeamSignature,
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
