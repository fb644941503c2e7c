// Goal: an API key authenticates its agent until it is revoked, expires or is rotated; from then on every replica
// refuses it.
import t from "tap";
import { createApiKey } from "../../server/plugins/auth/api-keys.ts";
import { API_KEY_PREFIX, isSecretShape } from "../../server/plugins/auth/secrets.ts";
import { testApp, type TestApp } from "../helpers/app.ts";
import { asOwner, createAgent, signIn } from "../helpers/owner.ts";
import { until } from "../helpers/until.ts";

interface KeyView {
  id: string;
  label: string;
  prefix: string;
  last4: string;
  status: string;
  expiresAt: string | null;
  revokedAt: string | null;
  lastUsedAt: string | null;
  rotatedToId: string | null;
}

t.test("the shape of a key", async (t) => {
  const keys = Array.from({ length: 300 }, () => createApiKey());
  t.equal(new Set(keys.map(({ apiKey }) => apiKey)).size, 300);
  for (const { apiKey, prefix, last4, keyHash } of keys) {
    t.match(apiKey, /^purser_[0-9A-Za-z]{39}$/);
    t.ok(isSecretShape(API_KEY_PREFIX, apiKey));
    t.ok(apiKey.startsWith(prefix) && apiKey.endsWith(last4));
    t.equal(keyHash.length, 32);
  }
  const { apiKey } = keys[0] ?? createApiKey();
  for (let index = API_KEY_PREFIX.length; index < apiKey.length; index += 1) {
    const other = apiKey[index] === "a" ? "b" : "a";
    const typo = apiKey.slice(0, index) + other + apiKey.slice(index + 1);
    t.notOk(isSecretShape(API_KEY_PREFIX, typo), `typo at ${index}`);
  }
  for (const bad of [
    "",
    "purser_",
    apiKey.slice(0, -1),
    `${apiKey}0`,
    apiKey.toUpperCase(),
    ` ${apiKey}`,
  ])
    t.notOk(isSecretShape(API_KEY_PREFIX, bad), bad);
});

t.test("keys", async (t) => {
  const service = await testApp(t);
  const replica = await testApp(t, { database: service.database, chain: service.chain });
  const owner = await signIn(service);
  const me = (apiKey: string, at: TestApp = service) =>
    at.app.inject({ url: "/api/agents/me", headers: { authorization: `Bearer ${apiKey}` } });
  const call = (method: "GET" | "POST" | "DELETE", url: string, body?: unknown) =>
    asOwner(service.app, owner, { method, url, body });
  const codeOf = (answer: { json: () => { code: string } }) => answer.json().code;

  await t.test("anything but a valid key is refused with a challenge", async (t) => {
    const cases: [Record<string, string>, string][] = [
      [{}, "missing_api_key"],
      [{ authorization: "" }, "missing_api_key"],
      [{ authorization: "Basic eDp5" }, "missing_api_key"],
      [{ authorization: "Bearer" }, "missing_api_key"],
      [{ authorization: "Bearer nonsense" }, "invalid_api_key"],
      [{ authorization: `Bearer ${createApiKey().apiKey}` }, "invalid_api_key"],
      [{ cookie: owner.cookie }, "missing_api_key"],
    ];
    for (const [headers, code] of cases) {
      const answer = await service.app.inject({ url: "/api/agents/me", headers });
      t.equal(answer.statusCode, 401);
      t.equal(codeOf(answer), code, JSON.stringify(headers).slice(0, 40));
      t.match(answer.headers["www-authenticate"], /^Bearer /);
    }
  });

  await t.test("several keys per agent, each with label and expiry", async (t) => {
    const agent = await createAgent(service, owner);
    const made = await call("POST", `/api/agents/${agent.id}/keys`, {
      label: "CI",
      expiresAt: "2099-01-01T00:00:00Z",
    });
    t.equal(made.statusCode, 201, made.body);
    const { key, apiKey } = made.json<{ key: KeyView; apiKey: string }>();
    t.match(key, {
      label: "CI",
      status: "active",
      expiresAt: "2099-01-01T00:00:00.000Z",
      revokedAt: null,
    });
    t.equal((await me(apiKey)).statusCode, 200);
    t.equal((await me(agent.apiKey)).statusCode, 200);
    const list = (await call("GET", `/api/agents/${agent.id}/keys`)).json<{ items: KeyView[] }>();
    t.same(
      list.items.map(({ id }) => id),
      [key.id, agent.keyId],
      "newest first",
    );
    t.notOk(JSON.stringify(list).includes(apiKey));
    const past = await call("POST", `/api/agents/${agent.id}/keys`, {
      expiresAt: "2020-01-01T00:00:00Z",
    });
    t.equal(past.statusCode, 422);
  });

  await t.test("revoked on one replica, refused by the other one at once", async (t) => {
    const agent = await createAgent(service, owner);
    t.equal((await me(agent.apiKey, replica)).statusCode, 200);
    const revoked = await call("DELETE", `/api/agents/${agent.id}/keys/${agent.keyId}`);
    t.equal(revoked.statusCode, 200, revoked.body);
    t.match(revoked.json(), { key: { id: agent.keyId, status: "revoked" } });
    t.equal(codeOf(await me(agent.apiKey, replica)), "api_key_revoked");
    t.equal(codeOf(await me(agent.apiKey)), "api_key_revoked");
    t.equal(
      (await call("DELETE", `/api/agents/${agent.id}/keys/${agent.keyId}`)).statusCode,
      200,
      "a second revocation is no error",
    );
  });

  await t.test("a key revoked during many requests: no later one succeeds", async (t) => {
    const agent = await createAgent(service, owner);
    let isRevoked = false;
    let lateSuccess = 0;
    const sendMany = async (at: TestApp) => {
      for (let index = 0; index < 20; index += 1) {
        const beganRevoked = isRevoked;
        const { statusCode } = await me(agent.apiKey, at);
        if (beganRevoked && statusCode === 200) lateSuccess += 1;
      }
    };
    const running = [service, replica, service, replica].map(sendMany);
    await call("DELETE", `/api/agents/${agent.id}/keys/${agent.keyId}`);
    isRevoked = true;
    await Promise.all(running);
    t.equal(lateSuccess, 0);
    t.equal(codeOf(await me(agent.apiKey)), "api_key_revoked");
  });

  await t.test("expired by the database's clock", async (t) => {
    const agent = await createAgent(service, owner);
    await service.database.pool.query(
      "UPDATE api_keys SET expires_at = clock_timestamp() WHERE id = $1",
      [agent.keyId],
    );
    t.equal(codeOf(await me(agent.apiKey)), "api_key_expired");
    t.equal(codeOf(await me(agent.apiKey, replica)), "api_key_expired");
  });

  await t.test("rotate with a grace period: both keys work, then only the new one", async (t) => {
    const agent = await createAgent(service, owner);
    const sentMs = Date.now();
    const rotated = await call("POST", `/api/agents/${agent.id}/keys/${agent.keyId}/rotate`, {
      graceSeconds: 600,
    });
    const answeredMs = Date.now();
    t.equal(rotated.statusCode, 201, rotated.body);
    const { key, apiKey, previous } = rotated.json<{
      key: KeyView;
      apiKey: string;
      previous: KeyView;
    }>();
    t.equal(previous.rotatedToId, key.id);
    t.equal(previous.status, "active");
    const from = Date.parse(previous.expiresAt ?? "") - 600_000;
    t.ok(from >= sentMs && from <= answeredMs, `the grace period starts at ${from}`);
    t.equal((await me(agent.apiKey)).statusCode, 200, "the old key, within the grace period");
    t.equal((await me(apiKey)).statusCode, 200);
    await service.database.pool.query(
      "UPDATE api_keys SET expires_at = expires_at - interval '601 seconds' WHERE id = $1",
      [agent.keyId],
    );
    t.equal(
      codeOf(await me(agent.apiKey)),
      "api_key_expired",
      "the old key, after the grace period",
    );
    t.equal((await me(apiKey)).statusCode, 200);
    const again = await call("POST", `/api/agents/${agent.id}/keys/${agent.keyId}/rotate`, {});
    t.equal(codeOf(again), "conflict");
  });

  await t.test("rotate without a grace period ends the old key at once", async (t) => {
    const agent = await createAgent(service, owner);
    const url = `/api/agents/${agent.id}/keys/${agent.keyId}/rotate`;
    const { apiKey } = (await call("POST", url, { graceSeconds: 0 })).json<{ apiKey: string }>();
    t.equal(codeOf(await me(agent.apiKey, replica)), "api_key_revoked");
    t.equal((await me(apiKey, replica)).statusCode, 200);
    for (const graceSeconds of [-1, 1.5, "60", 604_801])
      t.equal((await call("POST", url, { graceSeconds })).statusCode, 422, String(graceSeconds));
  });

  await t.test("two parallel rotations of one key create one new key", async (t) => {
    const agent = await createAgent(service, owner);
    const url = `/api/agents/${agent.id}/keys/${agent.keyId}/rotate`;
    const answers = await Promise.all([
      call("POST", url, { graceSeconds: 60 }),
      call("POST", url, { graceSeconds: 60 }),
    ]);
    t.same(
      answers.map(({ statusCode }) => statusCode).sort((left, right) => left - right),
      [201, 409],
    );
  });

  await t.test("the last use is recorded at most once a minute", async (t) => {
    const agent = await createAgent(service, owner);
    const lastUse = async () => {
      const { items } = (await call("GET", `/api/agents/${agent.id}/keys`)).json<{
        items: KeyView[];
      }>();
      return items[0]?.lastUsedAt ?? null;
    };
    t.equal(await lastUse(), null);
    await me(agent.apiKey);
    await until(async () => (await lastUse()) !== null);
    const first = await lastUse();
    await Promise.all([me(agent.apiKey), me(agent.apiKey)]);
    t.equal(await lastUse(), first);
    await service.database.pool.query(
      "UPDATE api_keys SET last_used_at = now() - interval '61 seconds' WHERE id = $1",
      [agent.keyId],
    );
    await me(agent.apiKey);
    await until(async () => Date.parse((await lastUse()) ?? "") >= Date.parse(first ?? ""));
  });

  await t.test("paused and expired agents may read", async (t) => {
    const agent = await createAgent(service, owner);
    await service.database.pool.query(
      "UPDATE agents SET status = 'paused', expires_at = now() WHERE id = $1",
      [agent.id],
    );
    t.equal((await me(agent.apiKey)).statusCode, 200);
  });

  await t.test("every change of keys is audited, without the keys", async (t) => {
    const agent = await createAgent(service, owner);
    await call("POST", `/api/agents/${agent.id}/keys/${agent.keyId}/rotate`, { graceSeconds: 60 });
    const made = (await call("POST", `/api/agents/${agent.id}/keys`, { label: "x" })).json<{
      key: KeyView;
    }>();
    await call("DELETE", `/api/agents/${agent.id}/keys/${made.key.id}`);
    const { items } = (await call("GET", `/api/agents/${agent.id}/audit`)).json<{
      items: { action: string; before: unknown; after: unknown }[];
    }>();
    t.same(
      items.map(({ action }) => action),
      [
        "key.revoked",
        "key.created",
        "key.signed",
        "key.rotated",
        "key.signed",
        "agent.created",
        "policy.signed",
      ],
    );
    t.match(items[0], {
      before: { id: made.key.id, revokedAt: null },
      after: { revokedAt: String },
    });
    t.match(items[3], {
      before: { id: agent.keyId },
      after: { previous: { id: agent.keyId }, graceSeconds: 60 },
    });
    t.notOk(JSON.stringify(items).includes(agent.apiKey));
  });
});

t.test("rate limit: guessing keys is limited per address, valid keys are not", async (t) => {
  const service = await testApp(t);
  const owner = await signIn(service);
  const agent = await createAgent(service, owner);
  const sendWithKey = () => service.app.inject({ url: "/api/agents/me", headers: agent.headers });
  t.equal((await sendWithKey()).statusCode, 200);
  const guess = () =>
    service.app.inject({
      url: "/api/agents/me",
      headers: { authorization: `Bearer ${createApiKey().apiKey}` },
    });
  let answer = await guess();
  for (let count = 0; count < 700 && answer.statusCode === 401; count += 1) answer = await guess();
  t.equal(answer.statusCode, 429);
  t.equal(answer.json<{ code: string }>().code, "rate_limited");
  t.ok(Number(answer.headers["retry-after"]) > 0);
  t.equal((await sendWithKey()).statusCode, 200, "a valid key is not limited");
});
