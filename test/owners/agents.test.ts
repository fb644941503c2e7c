// Goal: an owner can create, read, change and archive agents; every change is in the audit log; no owner can reach
// another owner's agents.
import { randomBytes } from "node:crypto";
import t from "tap";
import { getAddress, isAddress } from "viem";
import { testApp } from "../helpers/app.ts";
import { asOwner, createAgent, signIn, type SignedInOwner } from "../helpers/owner.ts";

const SHOP = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8";
const OTHER = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC";

interface AgentView {
  id: string;
  name: string;
  status: string;
  expired: boolean;
  network: string;
  walletAddress: string;
  balance: string | null;
  dailyLimit: string;
  perPaymentLimit: string | null;
  limits: Record<string, string | null>;
  allowlist: { address: string; label: string; createdAt: string }[];
  expiresAt: string | null;
  updatedAt: string;
  archivedAt: string | null;
}
interface AuditView {
  action: string;
  actor: string;
  before: Record<string, unknown> | null;
  after: Record<string, unknown> | null;
  requestId: string;
}
interface ProblemView {
  code: string;
  detail: string;
  errors?: { path: string; message: string }[];
}

t.test("agents", async (t) => {
  const service = await testApp(t);
  const { app, chain, database } = service;
  const owner = await signIn(service);
  const otherOwner = await signIn(service);

  const call = (
    method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE",
    url: string,
    body?: unknown,
    by: SignedInOwner = owner,
  ) => asOwner(app, by, { method, url, body });
  const recorded = async (id: string) =>
    (await call("GET", `/api/agents/${id}/audit`)).json<{ items: AuditView[] }>().items;
  /** Without the entries of signed policies. */
  const audit = async (id: string) =>
    (await recorded(id)).filter(({ action }) => action !== "policy.signed");

  await t.test("the first steps are open until the first paid call, or until hidden", async (t) => {
    const newcomer = await signIn(service);
    const read = async (by = newcomer) =>
      (await call("GET", "/api/owner/first-steps", undefined, by)).json<object>();
    const nothing = { funded: false, key: false, paid: false, notified: false, recovery: false };
    t.same(await read(), { isOpen: true, agentId: null, steps: nothing });
    const agent = await createAgent(service, newcomer);
    t.same(await read(), { isOpen: true, agentId: agent.id, steps: { ...nothing, key: true } });
    const paid = (id: string, kind: string, status: string) =>
      database.pool.query(
        `INSERT INTO payments (agent_id, id, kind, status, chain_id, asset, counterparty, amount, nonce, tx_hash, settled_at, denial_code)
         VALUES ($1, $2, $3, $4, 5042002, $5, $6, 5, $7, $8, CASE WHEN $4 = 'settled' THEN now() END,
                 CASE WHEN $4 = 'blocked' THEN 'agent_paused' END)`,
        [agent.id, id, kind, status, chain.usdc.toLowerCase(), SHOP.toLowerCase(), ...hashes(id)],
      );
    const hashes = (id: string) => ["a", "b"].map((end) => `0x${id.length}${end.repeat(63)}`);
    await paid("pay_i", "incoming", "settled");
    await paid("pay_no", "x402", "blocked");
    await paid("pay_out", "withdrawal", "settled");
    await paid("pay_open", "x402", "submitted");
    const steps = { ...nothing, key: true, funded: true };
    t.same(await read(), { isOpen: true, agentId: agent.id, steps }, "none of them is a paid call");
    await paid("pay_first", "x402", "settled");
    t.match(await read(), { isOpen: false, steps: { paid: true } });

    const another = await signIn(service);
    t.match(await read(another), { isOpen: true, agentId: null }, "no other owner's steps");
    const hidden = await call("POST", "/api/owner/first-steps/hide", undefined, another);
    t.match(hidden.json(), { isOpen: false, steps: nothing });
    t.match(await read(another), { isOpen: false }, "on every device");
    t.match(await read(await signIn(service, another.account)), { isOpen: false });
  });

  await t.test("create", async (t) => {
    const answer = await call("POST", "/api/agents", {
      name: "  Research  ",
      dailyLimit: "1.50",
      perPaymentLimit: "0.25",
      allowlist: [SHOP.toLowerCase(), { address: OTHER, label: "Other shop" }],
      expiresAt: "2099-01-01T00:00:00Z",
    });
    t.equal(answer.statusCode, 201, answer.body);
    t.equal(answer.headers["cache-control"], "no-store");
    const { agent, apiKey } = answer.json<{ agent: AgentView; apiKey: string }>();
    t.match(apiKey, /^purser_[0-9A-Za-z]{39}$/);
    t.ok(isAddress(agent.walletAddress), "checksummed");
    t.match(agent, {
      name: "Research",
      status: "active",
      expired: false,
      network: "eip155:5042002",
      balance: "0",
      dailyLimit: "1.5",
      perPaymentLimit: "0.25",
      limits: { limit: "1.5", spent: "0", reserved: "0", remaining: "1.5", nextReleaseAt: null },
      expiresAt: "2099-01-01T00:00:00.000Z",
      archivedAt: null,
    });
    t.same(
      agent.allowlist.map(({ address, label }) => ({ address, label })).sort(byAddress),
      [
        { address: getAddress(SHOP), label: "" },
        { address: getAddress(OTHER), label: "Other shop" },
      ].sort(byAddress),
    );
    const read = await call("GET", `/api/agents/${agent.id}`);
    t.same(read.json(), agent);
    const [entry] = await audit(agent.id);
    t.match(entry, { action: "agent.created", actor: owner.account.address, before: null });
    t.same(
      (await recorded(agent.id)).map(({ action }) => action),
      ["agent.created", "policy.signed"],
    );
    t.equal(entry?.requestId, answer.headers["x-request-id"]);
    t.notOk(JSON.stringify(entry).includes(apiKey));
  });

  await t.test("invalid agents are refused", async (t) => {
    const good = { name: "a", dailyLimit: "1", allowlist: [] };
    const cases: [Record<string, unknown>, string][] = [
      [{ ...good, name: "" }, "validation_failed"],
      [{ ...good, name: "   " }, "validation_failed"],
      [{ ...good, name: "x".repeat(81) }, "validation_failed"],
      [{ ...good, name: "a\u0000b" }, "validation_failed"],
      [{ ...good, name: "a\u202eb" }, "validation_failed"],
      [{ ...good, name: 1 }, "validation_failed"],
      [{ ...good, dailyLimit: 1 }, "invalid_amount"],
      [{ ...good, dailyLimit: "-1" }, "invalid_amount"],
      [{ ...good, dailyLimit: "1e3" }, "invalid_amount"],
      [{ ...good, dailyLimit: "0.0000001" }, "invalid_amount"],
      [{ ...good, perPaymentLimit: "1." }, "invalid_amount"],
      [{ ...good, expiresAt: "tomorrow" }, "validation_failed"],
      [{ ...good, expiresAt: "2020-01-01T00:00:00Z" }, "validation_failed"],
      [{ ...good, network: "eip155:1" }, "validation_failed"],
      [{ ...good, ownerId: "own_x" }, "validation_failed"],
      [{ ...good, owner: otherOwner.account.address }, "validation_failed"],
      [{ ...good, allowlist: ["0x123"] }, "invalid_address"],
      [{ ...good, allowlist: [SHOP.replace("C51812", "c51812")] }, "invalid_address"],
      [{ ...good, allowlist: [`0x${"0".repeat(40)}`] }, "invalid_address"],
      [{ ...good, allowlist: [SHOP, SHOP.toLowerCase()] }, "validation_failed"],
      [{ ...good, allowlist: [{ address: SHOP, label: "x".repeat(81) }] }, "validation_failed"],
      [{ ...good, allowlist: Array.from({ length: 1001 }, () => SHOP) }, "validation_failed"],
      [{ dailyLimit: "1", allowlist: [] }, "validation_failed"],
      [{ name: "a", allowlist: [] }, "validation_failed"],
    ];
    for (const [body, code] of cases) {
      const answer = await call("POST", "/api/agents", body);
      const name = JSON.stringify(body).slice(0, 90);
      t.equal(answer.statusCode, 422, name);
      t.equal(answer.json<ProblemView>().code, code, `${name}: ${answer.body.slice(0, 200)}`);
      t.ok(answer.json<ProblemView>().errors?.length, "the error names the field");
    }
  });

  await t.test("a bulk paste reports every wrong line; 1000 valid ones are accepted", async (t) => {
    const agent = await createAgent(service, owner);
    const wrong = await call("PUT", `/api/agents/${agent.id}/allowlist`, {
      allowlist: [SHOP, "nonsense", OTHER, "0x12"],
    });
    t.same(
      wrong.json<ProblemView>().errors?.map(({ path }) => path),
      ["body.allowlist.1", "body.allowlist.3"],
    );
    const thousand = Array.from({ length: 1000 }, () => `0x${randomBytes(20).toString("hex")}`);
    const events = async () =>
      (
        await service.database.pool.query(
          "SELECT 1 FROM events WHERE type = 'agent' AND subject_id = $1",
          [agent.id],
        )
      ).rowCount ?? 0;
    const eventsBefore = await events();
    const right = await call("PUT", `/api/agents/${agent.id}/allowlist`, { allowlist: thousand });
    t.equal(await events(), eventsBefore + 1, "one event for the whole list");
    const labelled = await call("PUT", `/api/agents/${agent.id}/allowlist`, {
      allowlist: thousand.slice(1).map((address) => ({ address, label: "new" })),
    });
    t.equal(labelled.statusCode, 200);
    t.equal(await events(), eventsBefore + 2, "one event for a thousand changed labels");
    await call("PUT", `/api/agents/${agent.id}/allowlist`, { allowlist: thousand });
    t.equal(right.statusCode, 200, right.body.slice(0, 200));
    t.equal(right.json<{ allowlist: unknown[] }>().allowlist.length, 1000);
    const more = await call("POST", `/api/agents/${agent.id}/allowlist`, { address: SHOP });
    t.equal(more.statusCode, 422, "more than 1000 are refused");
  });

  await t.test("a limit of zero is kept as zero", async (t) => {
    const agent = await createAgent(service, owner, { dailyLimit: "0", perPaymentLimit: "0" });
    const view = (await call("GET", `/api/agents/${agent.id}`)).json<AgentView>();
    t.match(view, {
      dailyLimit: "0",
      perPaymentLimit: "0",
      limits: { limit: "0", remaining: "0" },
    });
  });

  await t.test("change, pause and resume are audited with both values", async (t) => {
    const agent = await createAgent(service, owner, { perPaymentLimit: "2" });
    const url = `/api/agents/${agent.id}`;
    const changed = await call("PATCH", url, {
      name: "Renamed",
      dailyLimit: "20",
      perPaymentLimit: null,
      expiresAt: "2098-01-01T00:00:00Z",
    });
    t.match(changed.json(), {
      name: "Renamed",
      dailyLimit: "20",
      perPaymentLimit: null,
      expiresAt: "2098-01-01T00:00:00.000Z",
      status: "active",
    });
    const paused = await call("PATCH", url, { status: "paused", dailyLimit: "21" });
    t.match(paused.json(), { status: "paused", dailyLimit: "21" });
    t.match((await call("PATCH", url, { status: "active" })).json(), { status: "active" });
    const same = await call("PATCH", url, { name: "Renamed", dailyLimit: "21.0" });
    t.equal(same.statusCode, 200);

    const entries = await audit(agent.id);
    t.same(
      entries.map(({ action }) => action),
      ["agent.resumed", "agent.paused", "agent.updated", "agent.updated", "agent.created"],
      "a change without effect is not recorded",
    );
    t.match(entries[1], { before: { status: "active" }, after: { status: "paused" } });
    t.same(entries[2]?.before, { dailyLimit: "20" });
    t.same(entries[2]?.after, { dailyLimit: "21" });
    t.match(entries[3], {
      actor: owner.account.address,
      before: { name: "Test agent", dailyLimit: "10", perPaymentLimit: "2", expiresAt: null },
      after: { name: "Renamed", dailyLimit: "20", perPaymentLimit: null },
    });
    const nothing = await call("PATCH", url, {});
    t.equal(nothing.statusCode, 422);
    for (const body of [{ status: "archived" }, { walletAddress: SHOP }, { network: "eip155:1" }])
      t.equal((await call("PATCH", url, body)).statusCode, 422, JSON.stringify(body));
  });

  await t.test("an expiry in the past ends the agent, a later one revives it", async (t) => {
    const agent = await createAgent(service, owner);
    const url = `/api/agents/${agent.id}`;
    const ended = await call("PATCH", url, { expiresAt: "2020-01-01T00:00:00Z" });
    t.match(ended.json(), { status: "expired", expired: true });
    const paused = await call("PATCH", url, { status: "paused" });
    t.match(paused.json(), { status: "paused", expired: true });
    const back = await call("PATCH", url, { expiresAt: null, status: "active" });
    t.match(back.json(), { status: "active", expired: false, expiresAt: null });
  });

  await t.test("allowlist: add, label, remove, replace", async (t) => {
    const agent = await createAgent(service, owner, { allowlist: [SHOP] });
    const url = `/api/agents/${agent.id}/allowlist`;
    const labels = (answer: { json: () => { allowlist: { address: string; label: string }[] } }) =>
      Object.fromEntries(answer.json().allowlist.map(({ address, label }) => [address, label]));
    const shop = getAddress(SHOP);
    const other = getAddress(OTHER);
    t.same(labels(await call("POST", url, { address: OTHER, label: "B" })), {
      [shop]: "",
      [other]: "B",
    });
    t.same(labels(await call("POST", url, { address: OTHER, label: "C" })), {
      [shop]: "",
      [other]: "C",
    });
    t.same(labels(await call("DELETE", `${url}/${SHOP.toLowerCase()}`)), { [other]: "C" });
    t.equal((await call("DELETE", `${url}/${SHOP}`)).statusCode, 404);
    t.equal((await call("DELETE", `${url}/nonsense`)).json<ProblemView>().code, "invalid_address");
    t.same(labels(await call("PUT", url, { allowlist: [{ address: SHOP, label: "A" }] })), {
      [shop]: "A",
    });
    t.same(labels(await call("PUT", url, { allowlist: [] })), {});
    t.same(
      (await audit(agent.id)).map(({ action }) => action),
      [
        "allowlist.replaced",
        "allowlist.replaced",
        "allowlist.removed",
        "allowlist.added",
        "allowlist.added",
        "agent.created",
      ],
    );
    t.match((await audit(agent.id))[3]?.before, { address: other, label: "B" });
  });

  await t.test("parallel edits are all applied, one after the other", async (t) => {
    const agent = await createAgent(service, owner, { dailyLimit: "1" });
    const url = `/api/agents/${agent.id}`;
    const limits = Array.from({ length: 12 }, (_, index) => String(index + 2));
    const answers = await Promise.all(
      limits.map((dailyLimit) => call("PATCH", url, { dailyLimit })),
    );
    t.ok(answers.every(({ statusCode }) => statusCode === 200));
    const changes = (await audit(agent.id))
      .filter(({ action }) => action === "agent.updated")
      .reverse();
    t.equal(changes.length, 12);
    let limit: unknown = "1";
    for (const { before, after } of changes) {
      t.equal(before?.["dailyLimit"], limit, "each began with the result of the one before");
      limit = after?.["dailyLimit"];
    }
    t.equal((await call("GET", url)).json<AgentView>().dailyLimit, limit);
  });

  await t.test("another owner gets 404", async (t) => {
    const agent = await createAgent(service, owner, { allowlist: [SHOP] });
    const before = (await call("GET", `/api/agents/${agent.id}`)).json<AgentView>();
    const url = `/api/agents/${agent.id}`;
    const attempts = [
      ["GET", url],
      ["PATCH", url, { dailyLimit: "1000" }],
      ["PUT", `${url}/allowlist`, { allowlist: [] }],
      ["POST", `${url}/allowlist`, { address: OTHER }],
      ["DELETE", `${url}/allowlist/${SHOP}`],
      ["GET", `${url}/keys`],
      ["POST", `${url}/keys`, {}],
      ["POST", `${url}/keys/${agent.keyId}/rotate`, {}],
      ["DELETE", `${url}/keys/${agent.keyId}`],
      ["GET", `${url}/audit`],
      ["POST", `${url}/archive`],
    ] as const;
    for (const [method, path, body] of attempts) {
      const answer = await call(method, path, body, otherOwner);
      t.equal(answer.statusCode, 404, `${method} ${path}`);
      t.equal(answer.json<ProblemView>().code, "not_found");
      const absent = await call(method, path.replace(agent.id, "agt_absent"), body, otherOwner);
      t.equal(
        absent.json<ProblemView>().detail,
        answer.json<ProblemView>().detail,
        "the same response as for an agent that does not exist",
      );
    }
    t.same((await call("GET", url)).json(), before);
    t.same((await call("GET", "/api/agents", undefined, otherOwner)).json(), {
      items: [],
      nextCursor: null,
    });
  });

  await t.test("a key of one agent is not found under another", async (t) => {
    const left = await createAgent(service, owner);
    const right = await createAgent(service, owner);
    t.equal((await call("DELETE", `/api/agents/${left.id}/keys/${right.keyId}`)).statusCode, 404);
    const me = await app.inject({ url: `/api/agents/${right.id}/keys`, headers: owner.headers });
    t.equal(me.json<{ items: { status: string }[] }>().items[0]?.status, "active");
  });

  await t.test("lists page through all, newest first, while new ones arrive", async (t) => {
    const lister = await signIn(service);
    const ids: string[] = [];
    for (let index = 0; index < 5; index += 1)
      ids.unshift((await createAgent(service, lister, { name: `n${index}` })).id);
    // All with the same timestamp: only the id orders them.
    await database.pool.query("UPDATE agents SET created_at = '2026-01-01' WHERE id = ANY($1)", [
      ids,
    ]);
    const seen: string[] = [];
    let cursor: string | null = null;
    do {
      const query: string = cursor === null ? "" : `&cursor=${encodeURIComponent(cursor)}`;
      const page = (await call("GET", `/api/agents?limit=2${query}`, undefined, lister)).json<{
        items: AgentView[];
        nextCursor: string | null;
      }>();
      seen.push(...page.items.map(({ id }) => id));
      cursor = page.nextCursor;
      if (seen.length === 2) await createAgent(service, lister, { name: "created meanwhile" });
    } while (cursor !== null);
    t.same(seen, ids);
    for (const query of ["limit=0", "limit=101", "limit=x", "cursor=!", "cursor=bm9wZQ", "page=2"])
      t.equal(
        (await call("GET", `/api/agents?${query}`, undefined, lister)).statusCode,
        422,
        query,
      );
  });

  await t.test("found by name, address and status, in pages", async (t) => {
    const searcher = await signIn(service);
    const made = [];
    for (const name of ["alpha one", "Alpha_two", "beta 100%"])
      made.push(await createAgent(service, searcher, { name }));
    const [first, second] = made;
    const names = async (query: string) =>
      (await call("GET", `/api/agents?${query}`, undefined, searcher))
        .json<{ items: AgentView[] }>()
        .items.map(({ name }) => name);
    t.same(await names("search=ALPHA"), ["Alpha_two", "alpha one"]);
    t.same(await names("search=_"), ["Alpha_two"], "no wildcard");
    t.same(await names(`search=${encodeURIComponent("%")}`), ["beta 100%"], "no wildcard");
    t.same(await names(`search=${first?.walletAddress}`), ["alpha one"]);
    t.same(await names("search=gamma"), []);
    await call("PATCH", `/api/agents/${second?.id}`, { status: "paused" }, searcher);
    t.same(await names("status=paused"), ["Alpha_two"]);
    t.same(await names("status=active&search=alpha"), ["alpha one"]);
    await database.pool.query("UPDATE agents SET expires_at = now() WHERE id = $1", [first?.id]);
    t.same(await names("status=active"), ["beta 100%"], "an expired agent is not active");
    const page = await call("GET", "/api/agents?search=alpha&limit=1", undefined, searcher);
    const { nextCursor } = page.json<{ nextCursor: string }>();
    t.same(await names(`search=alpha&cursor=${nextCursor}`), ["alpha one"]);
    t.same((await call("GET", "/api/agents?search=alpha")).json(), { items: [], nextCursor: null });
    for (const query of ["search=", "search=%00", "status=expired"])
      t.equal((await call("GET", `/api/agents?${query}`, undefined, searcher)).statusCode, 422);
  });

  await t.test("archive: not with funds or open payments; then read-only", async (t) => {
    const agent = await createAgent(service, owner);
    const url = `/api/agents/${agent.id}`;
    await chain.mint(agent.walletAddress, 1n);
    const funded = await call("POST", `${url}/archive`);
    t.equal(funded.statusCode, 409, funded.body);
    t.match(funded.json(), { code: "agent_has_funds", balance: "0.000001" });

    const empty = await createAgent(service, owner, { allowlist: [SHOP] });
    const emptyUrl = `/api/agents/${empty.id}`;
    await database.pool.query(
      `INSERT INTO payments (agent_id, id, kind, status, chain_id, asset, counterparty, amount, nonce)
       VALUES ($1, 'pay_promised', 'x402', 'submitted', 5042002, $2, $3, 5, $4)`,
      [empty.id, chain.usdc.toLowerCase(), SHOP.toLowerCase(), `0x${"7".repeat(64)}`],
    );
    t.match((await call("POST", `${emptyUrl}/archive`)).json(), {
      code: "agent_has_funds",
      outstanding: "0.000005",
    });
    await database.pool.query(
      "UPDATE payments SET status = 'voided' WHERE agent_id = $1 AND id = 'pay_promised'",
      [empty.id],
    );

    await chain.stop();
    const blind = await call("POST", `${emptyUrl}/archive`);
    t.equal(
      blind.json<ProblemView>().code,
      "chain_unavailable",
      "not while the balance is unknown",
    );
    const view = await call("GET", emptyUrl);
    t.equal(view.json<AgentView>().balance, null, "an unreachable chain hides only the balance");
    await chain.start();

    const done = await call("POST", `${emptyUrl}/archive`);
    t.equal(done.statusCode, 200, done.body);
    t.match(done.json(), { status: "archived" });
    t.ok(done.json<AgentView>().archivedAt);
    for (const [method, path, body] of [
      ["PATCH", emptyUrl, { name: "x" }],
      ["PUT", `${emptyUrl}/allowlist`, { allowlist: [] }],
      ["POST", `${emptyUrl}/keys`, {}],
    ] as const)
      t.equal((await call(method, path, body)).json<ProblemView>().code, "conflict", path);
    const key = await app.inject({ url: "/api/agents/me", headers: empty.headers });
    t.equal(key.json<ProblemView>().code, "api_key_revoked");
    const listed = async (query: string) =>
      (await call("GET", `/api/agents?limit=100${query}`))
        .json<{ items: AgentView[] }>()
        .items.map(({ id }) => id);
    t.notOk((await listed("")).includes(empty.id));
    t.same(await listed("&archived=true"), [empty.id]);
    t.equal((await audit(empty.id))[0]?.action, "agent.archived");
  });
});

const byAddress = (left: { address: string }, right: { address: string }): number =>
  left.address.localeCompare(right.address);
