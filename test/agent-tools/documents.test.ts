// Goal: the documents for agents and developers are valid and complete, and every command in them runs.
import { createHash } from "node:crypto";
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { Validator } from "@seriousme/openapi-schema-validator";
import t from "tap";
import { prepareDocs } from "../../server/local/bootstrap.mjs";
import { ERRORS } from "../../server/errors.ts";
import { launchBrowser, openPage } from "../helpers/browser.ts";
import { agentWorld } from "./world.ts";

const { app, agent, friend, baseUrl } = await agentWorld(t);

t.test("the OpenAPI document is valid and contains every route and error code", async (t) => {
  const document = (await app.inject("/openapi.json")).json();
  const { valid, errors } = await new Validator().validate(document);
  t.ok(valid, JSON.stringify(errors));
  t.equal(document.openapi, "3.1.0");
  t.equal(document.servers[0].url, baseUrl);
  t.same(
    document["x-error-codes"].map((entry: { code: string }) => entry.code),
    Object.keys(ERRORS),
  );
  const documented = new Set(
    Object.entries(document.paths as Record<string, object>).flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
    ),
  );
  // OAuth's own metadata documents describe its endpoints.
  const hidden =
    /^\/(\.well-known|oauth|metrics|openapi\.json|docs|assets|\*|mcp)|^\/$|\.(js|css|svg|html|ico|woff2|webmanifest|png)(\.(gz|br))?$/;
  for (const route of app.knownRoutes) {
    if (["HEAD", "OPTIONS"].includes(route.method) || hidden.test(route.url)) continue;
    // The GET redirects a person's browser to the app; only the POST, for mail clients, is documented.
    if (route.method === "GET" && route.url === "/api/email/unsubscribe") continue;
    const name = `${route.method} ${route.url.replaceAll(/:([A-Za-z]+)/g, "{$1}")}`;
    t.ok(documented.has(name), `${name} is documented`);
  }
  for (const [path, methods] of Object.entries(
    document.paths as Record<string, Record<string, { summary?: string }>>,
  )) {
    for (const [method, operation] of Object.entries(methods))
      t.ok(operation.summary, `${method} ${path} has a summary`);
  }
});

t.test("the documentation pages open, and only their own scripts run (CSP)", async (t) => {
  await prepareDocs((line) => t.comment(line));
  const page = await app.inject("/docs/");
  t.equal(page.statusCode, 200);
  const policy = String(page.headers["content-security-policy"]);
  const inline = [...page.body.matchAll(/<script[^>]*>([^<]+)<\/script>/g)];
  for (const [, text = ""] of inline)
    t.ok(policy.includes(`'sha256-${createHash("sha256").update(text).digest("base64")}'`));
  t.notMatch(policy, /unsafe/);
  t.notMatch(page.body, / style=|<style/, "the content security policy would block inline styles");
  const [, script = ""] = /<script type="module" src="([^"]+)"/.exec(page.body) ?? [];
  const code = await app.inject(script);
  t.equal(code.statusCode, 200);
  t.match(code.headers["cache-control"], /immutable/);
  for (const url of ["/docs/", script]) {
    const { headers } = await app.inject({ url, headers: { "accept-encoding": "br, gzip" } });
    t.equal(headers["content-encoding"], "br", url);
  }
  for (const path of [
    "reference/errors",
    "how-to/check-audit.mjs",
    "tutorials/first-agent",
    "operations/alerts/",
  ])
    t.equal((await app.inject(`/docs/${path}`)).statusCode, 200, path);
  for (const path of ["nowhere", "..%2f..%2fpackage.json", "%00", "assets"])
    t.match((await app.inject(`/docs/${path}`)).json(), { code: "not_found" }, path);
  for (const [from, to] of [
    ["/docs", "/docs/"],
    ["/docs?x=1", "/docs/"],
    ["/docs/json", "/openapi.json"],
    ["/docs/yaml", "/openapi.json"],
  ] as const)
    t.match(await app.inject(from), { statusCode: 308, headers: { location: to } }, from);
});

t.test(
  "a reader finds a page, an error code and a route, and the content security policy blocks nothing",
  async (t) => {
    await prepareDocs((line) => t.comment(line));
    const { page, faults } = await openPage(t, await launchBrowser(), { width: 360 });
    await page.goto(`${baseUrl}/docs`);
    await page.getByRole("heading", { name: "Purser documentation" }).waitFor();
    await page.getByRole("button", { name: "Search" }).click();
    await page.getByRole("searchbox").fill("daily_limit_exceeded");
    await page.locator(".result").first().click();
    await page.waitForURL(`${baseUrl}/docs/reference/errors#daily_limit_exceeded`);
    await page.goto(`${baseUrl}/docs/reference/api#spend`);
    await page.locator("summary", { hasText: "/api/agents/spend" }).waitFor();
    t.equal(
      await page.evaluate(() => document.documentElement.scrollWidth),
      360,
      "no horizontal overflow",
    );
    await page.setViewportSize({ width: 1280, height: 900 });
    await page.getByRole("switch").first().click();
    await page.locator("html.dark").waitFor();
    t.same(faults, []);
  },
);

t.test("the skill file is short, has front matter, and its commands run", async (t) => {
  const answer = await app.inject("/skill.md");
  t.match(answer.headers["content-type"], /text\/markdown/);
  const lines = answer.body.split("\n");
  t.ok(lines.length < 200, `${lines.length} lines`);
  t.match(answer.body, /^---\nname: purser\ndescription: .+\n---\n/);
  t.match(answer.body, /Never split a payment/);
  t.match(answer.body, /untrusted data/);
  t.match(
    answer.body,
    /After agent_paused, paused_by_rule or owner_stopped, stop paying.+Tell your owner/,
  );
  for (const code of ["daily_limit_exceeded", "recipient_not_allowed", "payment_status_unknown"])
    t.match(answer.body, code);

  const commands = [...answer.body.matchAll(/```sh\n([\s\S]*?)```/g)].map(
    (match) => match[1] ?? "",
  );
  t.equal(commands.length, 5);
  const outputs = await Promise.all(
    commands.map(async (command) => {
      const env = { PATH: process.env["PATH"], AGENT_API_KEY: agent.apiKey };
      const { stdout } = await promisify(execFile)(
        "bash",
        ["-c", command.replace("0x...", friend)],
        { env },
      );
      return JSON.parse(stdout) as Record<string, unknown>;
    }),
  );
  t.match(outputs[0], { wallet: agent.walletAddress });
  t.match(outputs[1], { paid: true, amountPaid: "0.001" });
  t.match(outputs[2], { items: [{ source: "built-in" }] });
  t.match(outputs[3], { success: true, amount: "0.5" });
  t.match(outputs[4], { id: "report-1", state: "open", left: "0.5" });
});

t.test("every link in llms.txt works", async (t) => {
  const { body } = await app.inject("/llms.txt");
  const links = [...body.matchAll(/\]\((http[^)]+)\)/g)].map((match) => new URL(match[1] ?? ""));
  t.ok(links.length >= 8);
  for (const link of links) {
    t.equal(link.origin, baseUrl);
    const status = (await app.inject({ url: link.pathname, headers: agent.headers })).statusCode;
    t.ok(
      status === 200 || (link.pathname === "/mcp" && status === 405),
      `${link.pathname}: ${status}`,
    );
  }
});

t.test("tool definitions in both formats", async (t) => {
  const openai = (await app.inject("/api/tools/openai")).json();
  const anthropic = (await app.inject("/api/tools/anthropic")).json();
  t.equal(openai.length, 12);
  t.same(
    openai.map((tool: { function: { name: string } }) => tool.function.name),
    anthropic.map((tool: { name: string }) => tool.name),
  );
  for (const tool of anthropic) {
    t.match(tool.name, /^[a-zA-Z0-9_-]{1,64}$/);
    t.equal(tool.input_schema.type, "object");
    t.equal(tool.input_schema.additionalProperties, false);
  }
});
