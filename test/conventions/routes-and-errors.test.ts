// Goal: every mistake of a caller gets a problem document (RFC 9457) with the right status and code, and no
// redirect.
import Fastify from "fastify";
import fp from "fastify-plugin";
import t from "tap";
import { routeAuth as authPlugin, UndeclaredAuth } from "../../server/plugins/http/index.ts";
import { noteCode } from "../helpers/conformance.ts";
import { testApp } from "../helpers/app.ts";

t.test("problems", async (t) => {
  // Only here are all schemas compiled at boot, so that an invalid one stops it.
  const { app, config, logs } = await testApp(t, { eager: true });

  const expectProblem = (
    response: {
      statusCode: number;
      headers: Record<string, unknown>;
      json: () => Record<string, unknown>;
    },
    status: number,
    code: string,
    name: string,
  ) => {
    t.equal(response.statusCode, status, `${name}: status`);
    t.match(
      String(response.headers["content-type"]),
      /^application\/problem\+json/,
      `${name}: type`,
    );
    const body = response.json();
    noteCode(code);
    t.match(
      body,
      { code, status, success: false, requestId: /^req_/, type: `/developers/errors#${code}` },
      `${name}: body`,
    );
    t.equal(body.error, body.detail, `${name}: error equals detail`);
    t.equal(response.headers["x-request-id"], body.requestId, `${name}: request id`);
  };
  const post = (url: string, payload: string, contentType = "application/json") =>
    app.inject({
      method: "POST",
      url,
      payload,
      headers: { "content-type": contentType, origin: config.publicUrl },
    });

  await t.test("bodies", async () => {
    expectProblem(await post("/api/auth/verify", "{nope"), 400, "invalid_json", "malformed JSON");
    expectProblem(await post("/api/auth/verify", ""), 422, "validation_failed", "empty body");
    expectProblem(
      await post("/api/auth/verify", '{"__proto__":{"x":1}}'),
      400,
      "invalid_json",
      "prototype poisoning",
    );
    expectProblem(
      await post("/api/auth/verify", "message=1", "application/x-www-form-urlencoded"),
      415,
      "unsupported_media_type",
      "form body",
    );
    expectProblem(
      await post("/api/auth/verify", JSON.stringify({ message: "x".repeat(300_000) })),
      413,
      "body_too_large",
      "oversize body",
    );
    const unknown = await post(
      "/api/auth/verify",
      JSON.stringify({ message: "x", signature: "0x", extra: 1 }),
    );
    expectProblem(unknown, 422, "validation_failed", "unknown field");
    t.match(unknown.json().errors, [{ path: "body.extra", message: /not a known field/ }]);
    const missing = await post("/api/auth/verify", "{}");
    t.same(
      missing
        .json()
        .errors.map((error: { path: string }) => error.path)
        .sort(),
      ["body.message", "body.signature"],
      "every missing field is named",
    );
  });

  await t.test("paths and methods", async () => {
    expectProblem(await app.inject("/api/nothing-here"), 404, "not_found", "unknown route");
    expectProblem(await app.inject("/api/%zz"), 400, "bad_request", "malformed URL");
    const wrongMethod = await app.inject({ method: "DELETE", url: "/api/health" });
    expectProblem(wrongMethod, 405, "method_not_allowed", "wrong method");
    t.match(wrongMethod.headers.allow, /GET/);
    expectProblem(
      await app.inject("/api/listings?nonsense=1"),
      422,
      "validation_failed",
      "unknown query key",
    );
  });

  await t.test("no API path redirects", async () => {
    for (const url of ["/api/health/", "/api/x402/", "/api/x402/supported/", "/openapi.json"]) {
      const response = await app.inject(url);
      t.equal(response.statusCode, 200, url);
    }
  });

  await t.test("query strings are not logged", async () => {
    await app.inject("/api/health?apiKey=purser_secret_value");
    t.notMatch(logs.join("\n"), /purser_secret_value/);
  });

  // The log does not redact fields by name: any extra field would be logged in full.
  await t.test("the log line of a response has exactly these fields", async () => {
    const { length } = logs;
    const headers = { authorization: "Bearer x", cookie: "a=b", "x-payment": "p" };
    await app.inject({ url: "/api/meta?q=1", headers });
    const lines = logs.slice(length).map((line) => JSON.parse(line) as Record<string, unknown>);
    const responseLines = lines.filter(({ msg }) => msg === "answered");
    t.same(
      responseLines.map((line) => [Object.keys(line).toSorted().join(" "), line["req"]]),
      [
        [
          "elapsedMs hostname level msg pid req reqId statusCode time",
          { method: "GET", path: "/api/meta", ip: "127.0.0.1" },
        ],
      ],
    );
  });

  await t.test("security headers", async () => {
    const { headers } = await app.inject("/api/health");
    t.match(headers["content-security-policy"], /default-src 'none'/);
    t.match(headers["content-security-policy"], /script-src 'self'(;|$)/);
    t.equal(headers["x-content-type-options"], "nosniff");
  });

  await t.test(
    "CORS: other origins may call routes of agents and the facilitator, but not of owners",
    async () => {
      const preflight = (url: string, method: string) =>
        app.inject({
          method: "OPTIONS",
          url,
          headers: {
            origin: "https://elsewhere.example",
            "access-control-request-method": method,
            "access-control-request-headers": "authorization",
          },
        });
      t.equal(
        (await preflight("/api/agents/spend", "POST")).headers["access-control-allow-origin"],
        "*",
      );
      t.equal(
        (await preflight("/api/x402/settle", "POST")).headers["access-control-allow-origin"],
        "*",
      );
      t.equal(
        (await preflight("/api/agents", "POST")).headers["access-control-allow-origin"],
        undefined,
      );
      t.equal(
        (await preflight("/api/agents/agt_1/archive", "POST")).headers[
          "access-control-allow-origin"
        ],
        undefined,
      );
      const read = await app.inject({
        url: "/api/agents",
        headers: { origin: "https://elsewhere.example" },
      });
      t.equal(read.headers["access-control-allow-origin"], undefined);
      t.equal(read.headers["access-control-allow-credentials"], undefined);
      t.equal(
        (
          await app.inject({
            url: "/api/agents/me",
            headers: { origin: "https://elsewhere.example" },
          })
        ).headers["access-control-allow-origin"],
        "*",
      );
    },
  );
});

t.test("a route that does not declare its authentication stops the boot", async (t) => {
  const boot = async (config: object) => {
    const app = Fastify();
    t.teardown(() => app.close());
    await app.register(fp(async () => undefined, { name: "errors" }));
    await app.register(authPlugin);
    app.get("/open", { config }, async () => "ok");
    await app.ready();
    return app;
  };
  await t.rejects(boot({}), UndeclaredAuth, "nothing declared");
  await t.rejects(boot({ auth: "everyone" }), UndeclaredAuth, "an unknown credential");
  await t.rejects(boot({ auth: "owner" }), UndeclaredAuth, "a credential that no module verifies");
  const app = await boot({ auth: "public" });
  t.equal((await app.inject("/open")).statusCode, 200);
});
