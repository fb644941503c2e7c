// Goal: who becomes a member of a team, under which account and role, and what the change ends, is exact in every case; a list
// that lacks a signature, or that the members before would not recognise, changes nothing.
import t from "tap";
import { getAddress, toHex, zeroAddress, zeroHash, type Address, type Hex } from "viem";
import { createPool } from "../../server/infra/db/pool.ts";
import { createPrisma } from "../../server/infra/db/prisma.ts";
import {
  orderDigest,
  REQUESTED_FORM,
  TEAM_ORDER_SECONDS,
  type MembersOrder,
} from "../../server/core/orders.ts";
import { PASSKEYS_CHAIN } from "../../server/core/passkeys.ts";
import {
  addressOfTeam,
  readTeamSignature,
  TEAMS_CHAIN,
  type Member,
  type MemberList,
} from "../../server/core/teams.ts";
import { SignatureNeeded, type Draft } from "../../server/plugins/orders/orders.ts";
import { lockMembers, lockMembersToChange } from "../../server/plugins/orders/team-store.ts";
import {
  changeMembers,
  listInForce,
  makeTeam,
  viewTeam,
  type TeamCall,
} from "../../server/plugins/teams/members.ts";
import { chainOf, countTeamsOf, findTeam } from "../../server/plugins/teams/store.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { until } from "../helpers/until.ts";
import { randomAddress } from "../spending/guardrails-sql.helper.ts";

const { url } = await testDatabase(t);
const pool = createPool(url, { maxConnections: 4 });
const prisma = createPrisma(pool);
t.teardown(async () => {
  await prisma.$disconnect();
  await pool.end();
});

const CHAIN_ID = 5_042_002;
const SINGLE = { nonce: zeroHash, deadlineSeconds: 9n };
const OWN_SIGNATURE: Hex = `0x${"1b".repeat(65)}`;

interface Account {
  id: string;
  address: Address;
  chainId: number;
}
let accounts = 0;
async function account(chainId = 0, address = randomAddress()): Promise<Account> {
  const id = `own_${(accounts += 1)}`;
  await pool.query("INSERT INTO owners (id, address, chain_id) VALUES ($1, $2, $3)", [
    id,
    address,
    chainId,
  ]);
  return { id, address, chainId };
}

function shownDraft(draft: Draft) {
  const { kind, agentId, chainId, version, validSeconds } = draft;
  return { kind, agentId, chainId, version, validSeconds, order: draft.build(SINGLE) };
}

/** A caller whose signature of anything is right. `used`: what was signed for, by whom. */
function callOf(owner: Account, list?: MemberList) {
  const used: unknown[] = [];
  const call = {
    prisma,
    owner,
    chainId: CHAIN_ID,
    signatures: { teams: { listInForce: async () => list } },
    orders: {
      verify: async (
        _owner: unknown,
        kind: "Members",
        { order, signature }: { order: MembersOrder; signature: Hex },
        chainId: number,
      ) => {
        const digest = orderDigest(kind, order, chainId, REQUESTED_FORM);
        return { kind, chainId, order, digest, signature };
      },
      use: async (_tx: unknown, by: object, signed: { signature: Hex }, draft: Draft) => {
        used.push({ by, signature: signed.signature, ...shownDraft(draft) });
      },
      requestingSignature: (_owner: unknown, work: () => Promise<unknown>) => work(),
    },
  } as unknown as TeamCall;
  return { call, used };
}

/** What it returns; or the order that is missing, or the refusal. */
async function outcomeOf(work: Promise<unknown>): Promise<unknown> {
  try {
    return await work;
  } catch (error) {
    if (error instanceof SignatureNeeded) return shownDraft(error.draft);
    const { code, message, extra } = error as Error & { code?: string; extra?: object };
    if (code === undefined) throw error;
    return { code, detail: message, ...extra };
  }
}
const signed = (order: object, more: object = {}) =>
  ({ order: { ...order, ...more }, signature: OWN_SIGNATURE }) as never;

const membersIn = async (teamId: string) =>
  (
    await pool.query(
      "SELECT name, address, chain_id::bigint AS chain, role FROM team_members WHERE team_id = $1 ORDER BY name",
      [teamId],
    )
  ).rows.map((row: Record<string, unknown>) => ({ ...row, chain: Number(row["chain"]) }));

t.test("a new team", async (t) => {
  const body = { name: " Acme ", memberName: " Ada " };
  for (const chainId of [1, 84_532, TEAMS_CHAIN])
    t.match(
      await outcomeOf(makeTeam(callOf(await account(chainId)).call, body)),
      { code: "conflict", detail: /contract account/ },
      `of an account on chain ${chainId}`,
    );
  const nobody = { id: "own_none", address: randomAddress(), chainId: 0 };
  t.match(await outcomeOf(makeTeam(callOf(nobody).call, body)), { code: "not_found" });
  for (const chainId of [0, PASSKEYS_CHAIN]) {
    const ada = await account(chainId);
    const { call, used } = callOf(ada);
    const order = {
      owner: zeroAddress,
      version: "1",
      name: "Acme",
      threshold: "1",
      approvalAbove: "0",
      members: [
        { name: "Ada", account: getAddress(ada.address), chain: String(chainId), role: "admin" },
      ],
      nonce: zeroHash,
      deadline: "9",
    };
    const draft = {
      kind: "Members",
      agentId: "",
      chainId: CHAIN_ID,
      version: null,
      validSeconds: TEAM_ORDER_SECONDS,
      order,
    };
    t.same(await outcomeOf(makeTeam(call, body)), draft, "it is asked for");
    t.equal(await countTeamsOf(prisma, ada), 0, "and nothing is made");
    const address = await makeTeam(call, { ...body, authorization: signed(order) });
    t.equal(
      address,
      addressOfTeam(orderDigest("Members", order as MembersOrder, CHAIN_ID, REQUESTED_FORM)),
    );
    const found = await findTeam(prisma, address, ada);
    const id = found?.id ?? "";
    t.same(found, { id, address });
    const [{ by, signature, ...asked }] = used as [{ by: object; signature: Hex }];
    t.same(asked, draft);
    t.same(by, { id, address, chainId: TEAMS_CHAIN }, "as the team's");
    t.same(readTeamSignature(signature), [{ address: ada.address, signature: OWN_SIGNATURE }]);
    const row = { name: "Ada", address: ada.address, chain: chainId, role: "admin" };
    t.same(await membersIn(id), [row]);
    t.match((await pool.query("SELECT team_name FROM owners WHERE id = $1", [id])).rows, [
      { team_name: /^Acme$/ },
    ]);
    const elsewhere = { ...ada, chainId: chainId === 0 ? 1 : 0 };
    t.equal(await findTeam(prisma, address, elsewhere), undefined, "another kind of account");
    t.equal(await countTeamsOf(prisma, elsewhere), 0);
    t.equal(await countTeamsOf(prisma, ada), 1);
  }
});

t.test("an account decides in at most twenty teams", async (t) => {
  const ada = await account();
  const { call } = callOf(ada);
  const join = async (count: number, role: string) => {
    for (let made = 0; made < count; made += 1)
      await pool.query(
        "INSERT INTO team_members (team_id, address, chain_id, name, role) VALUES ($1, $2, 0, 'x', $3)",
        [(await account(TEAMS_CHAIN)).id, ada.address, role],
      );
  };
  const make = () => outcomeOf(makeTeam(call, { name: "x", memberName: "x" }));
  await join(3, "viewer");
  await join(18, "admin");
  await join(1, "approver");
  t.equal(await countTeamsOf(prisma, ada), 19, "where it only looks, it does not decide");
  t.match(await make(), { kind: "Members" }, "the twentieth");
  await join(1, "admin");
  t.match(await make(), { code: "conflict", detail: /20 teams/ });
});

/** A team with these members, and a caller who acts for it. */
async function teamOf(list: Partial<MemberList> & { members: Member[] }) {
  const team = await account(TEAMS_CHAIN);
  for (const { name, address, chainId, role } of list.members)
    await pool.query(
      "INSERT INTO team_members (team_id, address, chain_id, name, role) VALUES ($1, $2, $3, $4, $5)",
      [team.id, address, chainId, name, role],
    );
  const before = { version: 4, name: "Acme", threshold: 1, approvalAboveAtomic: 0n, ...list };
  return { team, before, ...callOf(team, before) };
}
const member = (name: string, of: Account, role: Member["role"]): Member => ({
  name,
  address: of.address,
  chainId: of.chainId,
  role,
});
const input = (name: string, { address }: { address: Address }, role: Member["role"]) => ({
  name,
  address: getAddress(address),
  role,
});
/** Lists that were signed before: the version follows from their number. */
const earlier = (teamId: string, from: number, to: number) =>
  pool.query(
    `INSERT INTO owner_orders (nonce, kind, owner_id, agent_id, chain_id, document, digest, deadline, signature, used_at)
     SELECT '0x' || md5($1::text || n) || md5(n::text), 'Members', $1::text, '', 1, '{}',
            '0x' || lpad('', 64, '0'), 1, '\\x01', clock_timestamp()
       FROM generate_series($2::int, $3::int) n`,
    [teamId, from, to],
  );

t.test("another list of members", async (t) => {
  const [ada, bob, cleo] = [await account(), await account(PASSKEYS_CHAIN), await account()];
  const [contract, fresh] = [await account(84_532), { address: randomAddress() }];
  const { team, call, used, before } = await teamOf({
    members: [member("Ada", ada, "admin"), member("Cleo", cleo, "viewer")],
  });
  const body = {
    name: " Acme 2 ",
    threshold: 2,
    approvalAbove: "1.5",
    members: [
      input(" Ada ", ada, "admin"),
      input("Bob", bob, "admin"),
      input("Dan", contract, "viewer"),
      input("Eve", fresh, "approver"),
    ],
  };
  const change = (more: object = {}, by = call) =>
    outcomeOf(changeMembers(by, { ...body, ...more }));
  t.match(await change({}, callOf(ada, before).call), { code: "conflict", detail: /Act for/ });
  t.match(await change({}, callOf(team).call), { code: "policy_not_signed" });
  t.match(await change({ approvalAbove: "x" }), {
    code: "invalid_amount",
    errors: [{ path: "body.approvalAbove" }],
  });
  t.match(await change({ members: [body.members[0], { ...body.members[1], address: "0x1" }] }), {
    code: "invalid_address",
    errors: [{ path: "body.members.1.address" }],
  });
  t.match(await change({ threshold: 3 }), {
    code: "validation_failed",
    errors: [{ path: "body.members", message: /needs the signatures of 3 admins, and has 2/ }],
  });
  const nobody = { ...team, id: "own_none" };
  t.match(await change({}, callOf(nobody, before).call), { code: "not_found" });

  await earlier(team.id, 1, 6);
  const named = (name: string, of: { address: Address }, chain: number, role: string) => ({
    name,
    account: getAddress(of.address),
    chain: String(chain),
    role,
  });
  const order = {
    owner: getAddress(team.address),
    // One more than were used, whatever the list that was read before the lock says.
    version: "7",
    name: "Acme 2",
    threshold: "2",
    approvalAbove: "1500000",
    members: [
      named("Ada", ada, 0, "admin"),
      named("Bob", bob, PASSKEYS_CHAIN, "admin"),
      named("Dan", contract, 84_532, "viewer"),
      named("Eve", fresh, 0, "approver"),
    ],
    nonce: zeroHash,
    deadline: "9",
  };
  t.match(await change(), { kind: "Members", agentId: "", validSeconds: TEAM_ORDER_SECONDS });
  t.same(((await change()) as { order: object }).order, order);
  t.equal((await membersIn(team.id)).length, 2, "unsigned, it changes nothing");

  const session = (id: string, by: Account, teamId: string | null) =>
    pool.query(
      `INSERT INTO sessions (id, owner_id, token_hash, expires_at, team_id) VALUES ($1, $2, $3, now() + interval '1 hour', $4)`,
      [id, by.id, Buffer.from(id.padEnd(32)), teamId],
    );
  await session("stays", ada, team.id);
  await session("leaves", cleo, team.id);
  await session("own", cleo, null);
  await session("elsewhere", cleo, (await account(TEAMS_CHAIN)).id);
  const namesake = await account(1, ada.address);
  await session("namesake", namesake, team.id);
  const wait = (id: string, teamId: string) =>
    pool.query(
      `INSERT INTO waiting_orders (id, team_id, member, kind, nonce, chain_id, form, document, method, path, body, signature, expires_at)
       VALUES ($1, $2, $3, 'Budget', $4, 1, 'readable', '{}', 'POST', '/x', '{}', '0x', now() + interval '1 day')`,
      [id, teamId, ada.address, toHex(id, { size: 32 })],
    );
  await wait("ours", team.id);
  await wait("theirs", (await account(TEAMS_CHAIN)).id);
  t.equal(await change({ authorization: signed(order) }), undefined);
  t.match(used, [{ by: { id: team.id }, signature: OWN_SIGNATURE, order }]);
  t.same(await membersIn(team.id), [
    { name: "Ada", address: ada.address, chain: 0, role: "admin" },
    { name: "Bob", address: bob.address, chain: PASSKEYS_CHAIN, role: "admin" },
    { name: "Dan", address: contract.address, chain: 84_532, role: "viewer" },
    { name: "Eve", address: fresh.address, chain: 0, role: "approver" },
  ]);
  const { rows } = await pool.query(
    "SELECT id FROM sessions WHERE revoked_at IS NOT NULL ORDER BY id",
  );
  t.same(rows, [{ id: "leaves" }, { id: "namesake" }], "who is no member acts for it no more");
  const ended = await pool.query("SELECT id FROM waiting_orders WHERE end_reason = 'members'");
  t.same(ended.rows, [{ id: "ours" }]);
});

t.test("who is known keeps the kind of account, and a team changes a thousand times", async (t) => {
  const ada = await account();
  // The same address has an account with passkeys by now.
  await account(PASSKEYS_CHAIN, ada.address);
  const { team, call } = await teamOf({ members: [member("Ada", ada, "admin")] });
  const change = () =>
    outcomeOf(
      changeMembers(call, {
        name: "x",
        threshold: 1,
        approvalAbove: "0",
        members: [input("Ada", ada, "admin")],
      }),
    );
  await earlier(team.id, 1, 999);
  t.match(await change(), { order: { version: /^1000$/, members: [{ chain: /^0$/ }] } });
  await earlier(team.id, 1_000, 1_000);
  t.match(await change(), { code: "conflict", detail: /1000 times/ });
});

t.test("the kind of account that an address has", async (t) => {
  for (const [what, chains, expected] of [
    ["nobody signed in", [], 0],
    ["a key", [0], 0],
    ["a contract", [84_532], 84_532],
    ["a key and a contract", [84_532, 0], 0],
    ["passkeys", [PASSKEYS_CHAIN], PASSKEYS_CHAIN],
    ["passkeys and a key", [0, PASSKEYS_CHAIN], PASSKEYS_CHAIN],
    ["a team's address", [TEAMS_CHAIN], 0],
  ] as const) {
    const address = randomAddress();
    for (const chainId of chains) await account(chainId, address);
    t.equal(await chainOf(prisma, address), expected, what);
  }
});

t.test("what a member sees of the team", async (t) => {
  const [ada, bob] = [await account(), await account(PASSKEYS_CHAIN)];
  const list = (threshold: number, ...roles: Member["role"][]): MemberList => ({
    version: 3,
    name: "Acme",
    threshold,
    approvalAboveAtomic: 1_500_000n,
    members: roles.map((role, index) => member(role, index === 0 ? ada : bob, role)),
  });
  t.same(viewTeam(ada.address, list(1, "admin", "admin")), {
    owner: getAddress(ada.address),
    name: "Acme",
    version: 3,
    threshold: 1,
    approvalAbove: "1.5",
    members: [
      { name: "admin", address: getAddress(ada.address), signsWith: "wallet", role: "admin" },
      { name: "admin", address: getAddress(bob.address), signsWith: "passkeys", role: "admin" },
    ],
    warning: null,
  });
  const warning = (of: MemberList) => viewTeam(ada.address, of).warning;
  t.match(warning(list(1, "admin", "approver")), /^Only one admin can sign/);
  t.match(warning(list(2, "admin", "admin", "viewer")), /^All 2 admins must sign/);
  t.equal(warning(list(2, "admin", "admin", "admin")), null);
  const own = callOf(ada, list(1, "admin")).call;
  t.match(await outcomeOf(listInForce(own)), { code: "conflict" }, "for the own account");
});

t.test("a list does not change while an order of the members is being used", async (t) => {
  const ada = await account();
  const { team } = await teamOf({ members: [member("Ada", ada, "admin")] });
  await earlier(team.id, 1, 2);
  const events: string[] = [];
  let change: Promise<unknown> = Promise.resolve();
  await prisma.$transaction(async (tx) => {
    t.equal(await lockMembers(tx, team.id), 2, "as many lists were signed");
    change = prisma
      .$transaction((other) => lockMembersToChange(other, team.id))
      .then(() => events.push("changed"));
    await until(async () => {
      const { rows } = await pool.query(
        "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
      );
      return rows.length > 0 || events.length > 0;
    });
    events.push("used");
  });
  await change;
  t.same(events, ["used", "changed"]);
});
