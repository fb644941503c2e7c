// Goal: operators can trust the alerts: every alert and every panel reads metrics that the service exports,
// fires when it must and not otherwise, and has a runbook whose queries run.
import { spawnSync } from "node:child_process";
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import t from "tap";
import { parse, stringify } from "yaml";
import { newVapidKeys } from "../../server/core/push-settings.ts";
import { addCells } from "../../server/plugins/cells/news-store.ts";
import { testApp } from "../helpers/app.ts";
import { createAgent, signIn } from "../helpers/owner.ts";
import { isFullTier } from "../helpers/tier.ts";
import { until } from "../helpers/until.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const textOf = (file: string): string => readFileSync(`${ROOT}${file}`, "utf8");

interface Rule {
  alert: string;
  expr: string;
  for?: string;
  labels: { severity: string };
  annotations: { summary: string; description: string; runbook_url: string };
}
interface RuleTest {
  name: string;
  promql_expr_test: { expr: string; exp_samples: { labels: string }[] }[];
}
const groups = (parse(textOf("ops/prometheus/rules.yaml")) as { groups: { rules: Rule[] }[] })
  .groups;
const rules = groups.flatMap((group) => group.rules);
const ruleTests = (parse(textOf("ops/prometheus/rules.test.yaml")) as { tests: RuleTest[] }).tests;
const PAGES = "docs/operations";
const ALERT_PAGES = `${PAGES}/alerts`;
const pagesIn = (folder: string): Map<string, string> =>
  new Map(
    readdirSync(new URL(`../../${folder}`, import.meta.url))
      .filter((name) => name.endsWith(".md"))
      .map((name) => [name.slice(0, -".md".length), textOf(`${folder}/${name}`)]),
  );
const alertPages = pagesIn(ALERT_PAGES);
alertPages.delete("index");
const runbooks = [...pagesIn(PAGES).values(), ...alertPages.values()].join("\n");

interface Panel {
  id: number;
  type: string;
  title: string;
  gridPos: { x: number; w: number };
  datasource?: { uid: string };
  targets?: { expr: string; datasource: { uid: string } }[];
}
const dashboard = JSON.parse(textOf("ops/grafana/purser.json")) as {
  uid: string;
  schemaVersion: number;
  panels: Panel[];
  templating: { list: { name: string; type: string; query: string | { query: string } }[] };
  annotations: { list: { expr: string }[] };
};
const queries = [
  ...dashboard.panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr)),
  ...dashboard.annotations.list.map(({ expr }) => expr),
];

/** Labels that Prometheus adds to everything it scrapes; `le` belongs to histograms. */
const SCRAPED = new Set(["job", "instance", "le"]);
const METRIC = /\b((?:purser|process|nodejs)_\w+|up)\b(?:\{([^}]*)\})?/g;

/** The metrics in a query with their matchers, and the labels that the results are grouped by. */
function readQuery(expr: string) {
  const metrics = [...expr.matchAll(METRIC)].map(([, name = "", matchers = ""]) => ({
    name,
    matchers: [...matchers.matchAll(/(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"/g)].map(
      ([, label = "", operator = "", value = ""]) => ({ label, operator, value }),
    ),
  }));
  const grouped = [...expr.matchAll(/\b(?:by|without|on)\s*\(([^)]*)\)/g)].flatMap(
    ([, list = ""]) => list.split(",").map((label) => label.trim()),
  );
  return { metrics, grouped };
}

const folder = mkdtempSync(join(tmpdir(), "purser-rules-"));
t.teardown(() => rmSync(folder, { recursive: true, force: true }));
const screened = join(folder, "blocked.txt");
writeFileSync(screened, `${new Date().toISOString().slice(0, 10)}\n`);

// With every optional part. No mail server and no read replica are there, but their metrics are exported all the same.
const cells = [{ id: "c1", url: "http://127.0.0.1:9", fromSeconds: 0n, untilSeconds: 2n ** 256n }];
const ctx = await testApp(t, {
  listen: true,
  configure: (config) => {
    config.cells = { self: "c1", cells, secret: "of nobody else, and long enough" };
  },
  env: {
    METRICS_TOKEN: "a-token-of-the-test",
    SMTP_URL: "smtp://127.0.0.1:9",
    MAIL_FROM: "purser@example.com",
    VAPID_KEYS: newVapidKeys(),
    DATABASE_READ_URL: "postgres://nobody@127.0.0.1:9/none",
    SCREENING_FILE: screened,
    SCREENING_FAILS: "closed",
  },
});
const scrape = async (): Promise<string> => {
  const headers = { authorization: "Bearer a-token-of-the-test" };
  const answer = await fetch(`${ctx.baseUrl}/metrics`, { headers });
  return answer.text();
};

/** After one settled and one refused payment, with the job queue started and gas measured. */
async function liveMetrics(): Promise<string> {
  const owner = await signIn(ctx);
  const payee = "0x00000000000000000000000000000000000c0ffe";
  const agent = await createAgent(ctx, owner, { dailyLimit: "2", allowlist: [payee] });
  await ctx.chain.mint(agent.walletAddress, 5_000_000n);
  for (const [amount, status] of [
    ["1", 200],
    ["3", 403],
  ] as const) {
    const { statusCode, body } = await ctx.app.inject({
      method: "POST",
      url: "/api/agents/spend",
      headers: agent.headers,
      payload: JSON.stringify({ recipient: payee, amount }),
    });
    if (statusCode !== status)
      throw new Error(`${statusCode} ${body}\n${ctx.logs.slice(-4).join("")}`);
  }
  // Later than the sign-in, which asks all cells.
  cells.push({ ...cells[0]!, id: "c2" });
  await addCells(ctx.app.pool, ["c2"]);
  await until(async () => {
    const text = await scrape();
    return /^purser_jobs_due\{/m.test(text) && /^purser_lane_payments_left\{/m.test(text);
  }, 20_000);
  return scrape();
}
const live = await liveMetrics();

/** Metrics of other processes than a replica, with their labels. */
const ELSEWHERE = new Map([
  ["up", new Set<string>()],
  ["purser_worker_restarts_total", new Set(["worker"])],
]);

/** The label names and current label values of one metric. */
function metricOf(
  named: string,
): { labels: Set<string>; shown: Map<string, Set<string>> } | undefined {
  const elsewhere = ELSEWHERE.get(named);
  if (elsewhere) return { labels: elsewhere, shown: new Map() };
  const name = named.replace(/_(bucket|sum|count)$/, "");
  const metric = (ctx.app.metrics.getSingleMetric(named) ??
    ctx.app.metrics.getSingleMetric(name)) as unknown as { labelNames: string[] } | undefined;
  if (!metric || !new RegExp(`^# TYPE (${named}|${name}) `, "m").test(live)) return undefined;
  const shown = new Map<string, Set<string>>();
  for (const [, list = ""] of live.matchAll(new RegExp(`^${named}\\{([^}]*)\\}`, "gm")))
    for (const [, label = "", value = ""] of list.matchAll(/(\w+)="([^"]*)"/g))
      shown.set(label, (shown.get(label) ?? new Set()).add(value));
  return { labels: new Set(metric.labelNames), shown };
}

/** Label values whose series appear with their first event. */
const COME_LATER = new Set([
  "answered=no",
  "status=500",
  "status=failed",
  "operation=verify",
  "outcome=given_up",
  "outcome=unavailable",
]);

/** The problems of a query: metrics or labels that the service does not export. Empty when there are none. */
function problemsOf(expr: string): string[] {
  const { metrics, grouped } = readQuery(expr);
  const known = new Set(SCRAPED);
  const problems: string[] = [];
  if (metrics.length === 0) problems.push("reads no metric");
  for (const { name, matchers } of metrics) {
    const metric = metricOf(name);
    if (!metric) {
      problems.push(`no ${name}`);
      continue;
    }
    for (const label of metric.labels) known.add(label);
    for (const { label, operator, value } of matchers) {
      if (SCRAPED.has(label)) continue;
      if (!metric.labels.has(label)) problems.push(`no ${label} on ${name}`);
      const values = metric.shown.get(label);
      const isExported = operator !== "=" || !values || values.has(value);
      if (!isExported && !COME_LATER.has(`${label}=${value}`))
        problems.push(`no ${label}="${value}" on ${name}`);
    }
  }
  for (const label of grouped) if (!known.has(label)) problems.push(`nothing to group by ${label}`);
  return problems;
}

t.test("a metric that the service does not export is detected", async (t) => {
  t.same(problemsOf('rate(purser_invented_total{job="purser"}[5m])'), ["no purser_invented_total"]);
  t.same(problemsOf('purser_ledger_differences{kind="x", lane="y"}'), [
    'no kind="x" on purser_ledger_differences',
    "no lane on purser_ledger_differences",
  ]);
  t.same(problemsOf("sum by (share) (purser_head_block)"), ["nothing to group by share"]);
  t.same(problemsOf("vector(1)"), ["reads no metric"]);
});

t.test("every alert reads metrics that /metrics exports", async (t) => {
  t.ok(rules.length > 25, `${rules.length} alerts`);
  t.equal(
    new Set(rules.map(({ alert }) => alert)).size,
    rules.length,
    "each alert has a unique name",
  );
  for (const { alert, expr } of rules) t.same(problemsOf(expr), [], alert);
});

t.test("every panel of the dashboard reads metrics that /metrics exports", async (t) => {
  t.ok(queries.length > 40, `${queries.length} queries`);
  for (const expr of queries) t.same(problemsOf(expr), [], expr);
  const [datasource, ...others] = dashboard.templating.list;
  t.match(datasource, { name: "datasource", type: "datasource", query: "prometheus" });
  for (const { query } of others) {
    const text = typeof query === "string" ? query : query.query;
    t.same(problemsOf(/^label_values\((.*), \w+\)$/.exec(text)?.[1] ?? ""), [], text);
  }
  t.ok(dashboard.schemaVersion >= 39, "the schema version of Grafana 11");
  const ids = dashboard.panels.map(({ id }) => id);
  t.equal(new Set(ids).size, ids.length, "panels have unique ids");
  for (const { type, title, gridPos, datasource: source, targets = [] } of dashboard.panels) {
    t.ok(gridPos.x + gridPos.w <= 24, `${title} fits`);
    if (type === "row") continue;
    const uids = [source, ...targets.map((target) => target.datasource)].map((each) => each?.uid);
    t.ok(
      uids.length > 1 && uids.every((uid) => uid === "${datasource}"),
      `${title}: the chosen one`,
    );
  }
});

/** Every metric that the sources define, whether or not this configuration exports it. */
const inSources = (): string[] =>
  readdirSync(`${ROOT}server`, { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".ts"))
    .flatMap((name) => [
      ...textOf(`server/${name}`).matchAll(
        /\bname: "(purser_\w+)",\s*help:|^\s*(purser_\w+): \[/gm,
      ),
    ])
    .map(([, metric = "", gauge = metric]) => gauge);

t.test("every metric of the service is on the dashboard or in an alert", async (t) => {
  const read = new Set(
    [...queries, ...rules.map(({ expr }) => expr)].flatMap((expr) =>
      readQuery(expr).metrics.map(({ name }) => name.replace(/_(bucket|sum|count)$/, "")),
    ),
  );
  const exported = [...live.matchAll(/^# TYPE (purser_\w+) /gm)].map(([, name = ""]) => name);
  t.ok(exported.length > 30, `${exported.length} metrics`);
  const defined = inSources();
  t.same(
    exported.filter((name) => !defined.includes(name)),
    [],
    "each is found in the sources",
  );
  t.same(
    defined.filter((name) => !read.has(name)),
    [],
  );
});

t.test("every alert has its texts and its runbook, and every runbook its alert", async (t) => {
  t.same([...alertPages.keys()].toSorted(), rules.map(({ alert }) => alert).toSorted());
  for (const { alert, labels, annotations } of rules) {
    t.match(labels.severity, /^(critical|warning)$/, alert);
    t.ok(annotations.summary.length > 10 && annotations.description.length > 20, alert);
    t.equal(annotations.runbook_url, `${ALERT_PAGES}/${alert}.md`);
    t.match(
      alertPages.get(alert) ?? "",
      /^## Do$[^]*^## It is over when$/m,
      `${alert}: what to do, and when it is over`,
    );
  }
});

t.test("every statement of the operators' page runs", async (t) => {
  const blocks = [...runbooks.matchAll(/^```sql\n([\s\S]*?)^```$/gm)].map(([, sql = ""]) => sql);
  t.ok(blocks.length > 10, `${blocks.length} blocks`);
  const inline = [...runbooks.matchAll(/`(SELECT [^`<]*)`/g)].map(([, sql = ""]) => sql);
  const calls = [...runbooks.matchAll(/`(SELECT graphile_worker[^`]*)`/g)].map(([, sql = ""]) =>
    sql.replace("'<locked_by>'", "'nobody'").replace("<id>", "0"),
  );
  t.ok(calls.length > 2, `${calls.length} calls of the job queue`);
  const client = await ctx.database.pool.connect();
  for (const sql of [...blocks, ...inline, ...calls]) {
    // These statements are for another server: a standby, or the database of that name.
    if (/pg_promote|ALTER ROLE purser|custody/.test(sql)) continue;
    await client.query("BEGIN");
    await client.query(sql).then(
      () => t.pass(sql),
      (error: Error) => t.fail(`${error.message}: ${sql}`),
    );
    await client.query("ROLLBACK");
  }
  client.release();
});

t.test("each alert has a test where it fires and one where it does not", async (t) => {
  for (const { alert, annotations } of rules) {
    const of = (end: string) => ruleTests.find(({ name }) => name === `${alert} ${end}`);
    const [rings] = of("rings")?.promql_expr_test ?? [];
    const [silent] = of("is silent")?.promql_expr_test ?? [];
    const ringing = `ALERTS{alertname="${alert}", alertstate="firing"}`;
    t.equal(rings?.expr, ringing);
    t.equal(silent?.expr, ringing);
    t.equal(rings?.exp_samples.length, 1, alert);
    t.equal(silent?.exp_samples.length, 0, alert);
    // A label in the texts that the alert does not have would render as empty.
    const used = `${annotations.summary}${annotations.description}`.matchAll(/\$labels\.(\w+)/g);
    for (const [, label = ""] of used)
      t.match(rings?.exp_samples[0]?.labels, new RegExp(`\\b${label}="`), `${alert}: ${label}`);
  }
  t.equal(ruleTests.length, rules.length * 2);
});

function whyNoPromtool(): string | false {
  if (!isFullTier) return "promtool: it is part of the full tier";
  const { status } = spawnSync("promtool", ["--version"]);
  return status === 0 ? false : "promtool is not installed";
}
const skip = whyNoPromtool();
const run = (cwd: string, ...args: string[]): { status: number; output: string } => {
  const { status, stdout, stderr } = spawnSync("promtool", args, { cwd, encoding: "utf8" });
  return { status: status ?? -1, output: `${stdout}${stderr}` };
};

t.test(
  "promtool: rules and queries are valid PromQL, and the alerts behave as their tests expect",
  { skip },
  async (t) => {
    const own = `${ROOT}ops/prometheus`;
    t.match(run(own, "check", "config", "--syntax-only", "prometheus.yaml"), { status: 0 });
    t.match(run(own, "check", "rules", "rules.yaml"), { status: 0 });
    t.match(run(own, "test", "rules", "rules.test.yaml"), { status: 0, output: /SUCCESS/ });
    const recorded = queries.map((expr, index) => ({
      record: `query:${index}`,
      expr: expr.replaceAll("$__rate_interval", "5m").replaceAll("$network", ".*"),
    }));
    writeFileSync(
      join(folder, "queries.yaml"),
      stringify({ groups: [{ name: "q", rules: recorded }] }),
    );
    t.match(run(folder, "check", "rules", "queries.yaml"), { status: 0 });
  },
);

t.test("promtool: the alerts' tests can fail", { skip }, async (t) => {
  cpSync(`${ROOT}ops/prometheus/rules.test.yaml`, join(folder, "rules.test.yaml"));
  const failing = (expr: string): number => {
    const altered = groups.map((group, index) => ({
      name: `g${index}`,
      rules: group.rules.map(({ alert, labels }) => ({ alert, labels, expr })),
    }));
    writeFileSync(join(folder, "rules.yaml"), stringify({ groups: altered }));
    const { output } = run(folder, "test", "rules", "rules.test.yaml");
    return new Set([...output.matchAll(/alertname=\\"(\w+)\\"/g)].map(([, name]) => name)).size;
  };
  t.equal(failing("vector(1) > 2"), rules.length, "if no alert fires");
  t.equal(failing("vector(1)"), rules.length, "if every alert fires");
});
