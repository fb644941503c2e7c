// Goal: a wrong configuration is refused before anything opens, with one list that names every problem and no secret.
import { randomBytes } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import t from "tap";
import { loadConfig, missingServices } from "../../server/config.ts";
import { urlsOfHosts } from "../../server/core/database-settings.ts";
import {
  connectionsInAll,
  connectionsOf,
  shareOf,
  usualWorkers,
  workersFor,
} from "../../server/core/worker-settings.ts";
import { hideConfigured } from "../../server/infra/telemetry.ts";
import { problemsOf } from "../helpers/config-problems.ts";

const goodKey = randomBytes(32).toString("base64");
const relayerKey = `0x${"11".repeat(31)}22`;
const production = {
  PURSER_MODE: "production",
  FACILITATOR_OPEN: "true",
  DATABASE_URL: "postgres://user:pass@127.0.0.1:5432/purser",
  RPC_URL_5042002: "http://127.0.0.1:8545",
  RELAYER_PRIVATE_KEYS: relayerKey,
  MASTER_KEYS: `k1:${goodKey}`,
};

t.test("without configuration it runs in local mode", async (t) => {
  const config = loadConfig({});
  t.equal(config.mode, "local");
  t.same(missingServices(config), { postgres: true, chain: true });
  t.equal(config.publicUrl, "http://localhost:3000");
  t.ok(config.fetchPrivateOrigins.includes(config.publicUrl), "agents may fetch our own demo");
});

t.test("with a database and a chain it runs in production mode", async (t) => {
  const config = loadConfig(production);
  t.equal(config.mode, "production");
  t.same(missingServices(config), { postgres: false, chain: false });
  t.equal(config.masterKeyActive, "k1");
  t.same(config.fetchPrivateOrigins, [], "no private origin is reachable");
});

t.test("several database hosts, and a direct URL beside a pooler", async (t) => {
  const one =
    "postgres://user:hunter2x@one:5433,[::1],three/purser?target_session_attrs=read-write&a=1";
  t.same(urlsOfHosts(one), [
    "postgres://user:hunter2x@one:5433/purser?a=1",
    "postgres://user:hunter2x@[::1]/purser?a=1",
    "postgres://user:hunter2x@three/purser?a=1",
  ]);
  t.same(urlsOfHosts("postgres:///name?host=/tmp"), ["postgres:///name?host=/tmp"]);
  const direct = "postgres://user:pass@10.0.0.9/purser";
  t.match(loadConfig({ ...production, DATABASE_DIRECT_URL: direct }), {
    databaseUrl: direct,
    databasePooledUrl: production.DATABASE_URL,
  });
  t.match(loadConfig({ ...production, DATABASE_URL: one }), { databasePooledUrl: undefined });
  for (const [DATABASE_URL, problem] of [
    ["postgres://user:hunter2x@one,two:port/purser", /DATABASE_URL must be a URL/],
    ["postgres://one/purser?target_session_attrs=any", /target_session_attrs=any: remove it/],
  ] as const) {
    const problems = problemsOf({ ...production, DATABASE_URL });
    t.match(problems, [problem]);
    t.notMatch(problems.join(" "), /hunter2x/);
  }
  const alone = problemsOf({ DATABASE_DIRECT_URL: direct });
  t.match(alone.join(" "), /DATABASE_URL \(the pooler's\) is missing/);
  const hide = hideConfigured(
    loadConfig({
      ...production,
      DATABASE_URL: "postgres://user:a-long-secret-word@one,two/purser",
    }),
  );
  t.notMatch(hide("refused: a-long-secret-word"), /a-long-secret-word/);
});

t.test("production refuses missing, short and example master keys", async (t) => {
  const cases: [string, Record<string, string>, RegExp][] = [
    ["missing", { MASTER_KEYS: "" }, /MASTER_KEYS is missing/],
    [
      "short",
      { MASTER_KEYS: `k1:${randomBytes(16).toString("base64")}` },
      /16 bytes instead of 32/,
    ],
    [
      "zeros",
      { MASTER_KEYS: `k1:${Buffer.alloc(32).toString("base64")}` },
      /looks like an example/,
    ],
    [
      "a sequence",
      {
        MASTER_KEYS: `k1:${Buffer.from(Array.from({ length: 32 }, (_, i) => i)).toString("base64")}`,
      },
      /looks like an example/,
    ],
    [
      "words",
      { MASTER_KEYS: `k1:${Buffer.from("change-me-please-this-is-a-key-0").toString("base64")}` },
      /looks like an example/,
    ],
    ["not kid:base64", { MASTER_KEYS: goodKey }, /not kid:base64/],
    ["twice", { MASTER_KEYS: `k1:${goodKey},k1:${goodKey}` }, /twice/],
    ["unknown active", { MASTER_KEY_ACTIVE: "k9" }, /MASTER_KEY_ACTIVE names "k9"/],
  ];
  for (const [name, change, expected] of cases) {
    t.match(problemsOf({ ...production, ...change }).join("\n"), expected, name);
  }
});

t.test(
  "anything not entirely on this machine is production, and every missing key is listed",
  async (t) => {
    const text = (environment: Record<string, string>) => problemsOf(environment).join("\n");
    const cases: Record<string, string>[] = [
      { HOST: "0.0.0.0" },
      { DATABASE_URL: production.DATABASE_URL },
      { RPC_URL_5042002: production.RPC_URL_5042002 },
      { PURSER_MODE: "production" },
    ];
    for (const some of cases) {
      const problems = text(some);
      for (const key of ["MASTER_KEYS", "RELAYER_PRIVATE_KEYS", "FACILITATOR_API_KEYS"])
        t.match(problems, `${key} is missing`, `${Object.keys(some).join()}: ${key}`);
      for (const key of ["DATABASE_URL", "RPC_URL_5042002"])
        if (!(key in some))
          t.match(problems, `${key} is missing`, `${Object.keys(some).join()}: ${key}`);
      t.equal(/PURSER_MODE is not set/.test(problems), !("PURSER_MODE" in some), "and the reason");
    }
    t.match(text({ HOST: "0.0.0.0" }), "PUBLIC_URL is missing");
    t.notMatch(text({ ...production, HOST: "127.0.0.1" }), /./, "on loopback it has a default");
    t.match(
      text({ ...production, PUBLIC_URL: "http://purser.example" }),
      "PUBLIC_URL must be https",
    );
    t.same(problemsOf({ ...production, PUBLIC_URL: "https://purser.example" }), []);
    t.match(text({ ...production, FACILITATOR_OPEN: "" }), "FACILITATOR_API_KEYS is missing");
    t.same(problemsOf({ ...production, FACILITATOR_OPEN: "", FACILITATOR_API_KEYS: "k" }), []);
    const merchant = `0x${"aB".repeat(20)}`;
    const merchants = (MERCHANTS: string) =>
      problemsOf({ ...production, FACILITATOR_OPEN: "", MERCHANTS });
    t.same(merchants(`${merchant},eip155:1:${merchant}`), []);
    t.match(merchants(`${merchant},shop.example`).join(), 'MERCHANTS has "shop.example"');
  },
);

t.test("other catalogues are read over https, and never this service itself", async (t) => {
  const own = "https://purser.example";
  const problems = (FOREIGN_CATALOGUES: string, more = {}) =>
    problemsOf({ ...production, PUBLIC_URL: own, FOREIGN_CATALOGUES, ...more })
      .filter((problem) => problem.startsWith("FOREIGN_CATALOGUES"))
      .join();
  const plain = "http://shop.example/list";
  t.equal(problems("https://shop.example/list"), "");
  t.match(problems(plain), /is not https/);
  t.equal(problems(plain, { FETCH_PRIVATE_ORIGINS: "http://shop.example" }), "");
  t.match(problems(`${own}/api/x402/discovery/resources`), /is this service itself/);
  for (const odd of ["ftp://shop.example/list", "file:///etc/passwd"]) t.not(problems(odd), "");
});

t.test("local mode uses embedded services on this machine, or refuses to start", async (t) => {
  const problems = problemsOf({ ...production, PURSER_MODE: "local", HOST: "0.0.0.0" }).join("\n");
  for (const key of ["DATABASE_URL", "RPC_URL_5042002", "HOST"]) t.match(problems, `${key} is`);
  t.equal(loadConfig({ PURSER_MODE: "local", HOST: "::1" }).mode, "local");
});

t.test("NODE_ENV has no effect", async (t) => {
  for (const NODE_ENV of ["production", "development", "test"]) {
    t.equal(loadConfig({ NODE_ENV }).mode, "local");
    t.match(problemsOf({ NODE_ENV, HOST: "0.0.0.0" }).join("\n"), "MASTER_KEYS is missing");
  }
});

t.test("TRUST_PROXY accepts only explicit proxies", async (t) => {
  for (const bad of [
    "true",
    "TRUE",
    "yes",
    "11",
    "0.0.0.0/0",
    "::/0",
    "10.0.0.0/40",
    "10.0.0.1,all",
  ])
    t.match(problemsOf({ ...production, TRUST_PROXY: bad }).join("\n"), "TRUST_PROXY", bad);
  const trust = (TRUST_PROXY: string) => loadConfig({ ...production, TRUST_PROXY }).trustProxy;
  t.same(trust("10.0.0.0/8, 192.0.2.7,loopback"), ["10.0.0.0/8", "192.0.2.7", "loopback"]);
  t.equal(trust("false"), false);
  const hops = trust("2") as (address: string, hop: number) => boolean;
  t.same(
    [0, 1, 2].map((hop) => hops("192.0.2.1", hop)),
    [true, true, false],
  );
});

t.test("a trusted proxy has no limit of connections unless one is set", async (t) => {
  const limited = (env: Record<string, string>, peers: string[]) =>
    peers.filter(loadConfig({ ...production, ...env }).isLimited);
  const TRUST_PROXY = "10.0.0.0/8, 192.0.2.7, 2001:db8::/32, loopback, uniquelocal";
  const proxies = ["10.1.2.3", "::ffff:10.1.2.3", "192.0.2.7", "2001:DB8::1", "127.0.0.1", "::1"];
  const more = ["192.168.1.1", "fd00::1"];
  const others = ["192.0.2.8", "11.0.0.1", "2001:db9::1", "fe80::1", "nonsense", ""];
  t.same(limited({ TRUST_PROXY }, [...proxies, ...more, ...others]), others);
  t.same(limited({ TRUST_PROXY: "1" }, [...proxies, ...others]), []);
  t.same(limited({}, proxies), proxies);
  t.same(limited({ TRUST_PROXY, CONNECTIONS_PER_ADDRESS: "20" }, proxies), proxies);
});

t.test("RATE_LIMITS changes the named limits and no others", async (t) => {
  const { rateLimits } = loadConfig({ RATE_LIMITS: "spend=12, sign-in=3" });
  t.equal(rateLimits.spend.perMinute, 12);
  t.equal(rateLimits["sign-in"].perMinute, 3);
  t.equal(rateLimits.fetch.perMinute, loadConfig({}).rateLimits.fetch.perMinute);
  for (const bad of ["spend", "spend=0", "spend=-1", "spend=1e3", "toString=5", "spend=99999999"])
    t.match(problemsOf({ RATE_LIMITS: bad }).join("\n"), "RATE_LIMITS", bad);
});

t.test("every problem is listed at once, and no value of a secret", async (t) => {
  const problems = problemsOf({
    PORT: "99999",
    DATABASE_URL: "mysql://root:hunter2@db/x",
    NETWORKS: "eip155:1,eip155:31337,eip155:1",
    RELAYER_PRIVATE_KEYS: "0xdeadbeef",
    MASTER_KEYS: "k1:c2hvcnQ=",
    PUBLIC_URL: "https://example.com/path",
    LOG_LEVEL: "loud",
    SETTLE_WAIT_MS: "99999",
    CONFIRMATIONS_1: "0",
    MAX_FEE_GWEI_1: "lots",
  });
  const text = problems.join("\n");
  for (const key of [
    "PORT",
    "DATABASE_URL",
    "NETWORKS",
    "RPC_URL_1",
    "RELAYER_PRIVATE_KEYS",
    "MASTER_KEYS",
    "PUBLIC_URL",
    "LOG_LEVEL",
    "SETTLE_WAIT_MS",
    "CONFIRMATIONS_1",
    "MAX_FEE_GWEI_1",
    "NATIVE_PRICE_1",
  ]) {
    t.match(text, key, `${key} is named`);
  }
  t.notMatch(text, /hunter2|deadbeef|c2hvcnQ/, "values of secrets are not echoed");
});

t.test("an empty value or list means not set", async (t) => {
  t.equal(loadConfig({ PORT: "", DATABASE_URL: "" }).port, 3000);
  for (const key of ["MASTER_KEYS", "RELAYER_PRIVATE_KEYS", "RPC_URL_5042002"])
    t.match(problemsOf({ ...production, [key]: " , " }), [`${key} is missing`], key);
});

t.test("gas price caps by network", async (t) => {
  const caps = (more: Record<string, string>) => {
    const [{ maxFeeGwei, maxTipGwei }] = loadConfig(more).networks;
    return [maxFeeGwei, maxTipGwei];
  };
  t.same(caps({}), [5_000, 500], "those of the network table");
  t.same(caps({ MAX_FEE_GWEI_5042002: "600.5" }), [600.5, 500]);
  t.same(caps({ MAX_FEE_GWEI_5042002: "0.5" }), [0.5, 0.5], "the tip is part of the fee");
});

t.test("RETAIN_DAYS changes the named days and no others", async (t) => {
  const usual = loadConfig({}).retention;
  t.same(loadConfig({ RETAIN_DAYS: "blocked=7, statistics=3650" }).retention, {
    ...usual,
    blockedDays: 7,
    statisticsDays: 3_650,
  });
  for (const bad of [
    "blocked",
    "blocked=0",
    "blocked=-1",
    "blocked=1.5",
    "days=5",
    "90",
    "bytes=100000",
  ])
    t.match(problemsOf({ RETAIN_DAYS: bad }), [`RETAIN_DAYS has "${bad}"`], bad);
});

t.test(
  "standard keys of OpenTelemetry turn traces off, and its headers stay out of the log",
  async (t) => {
    const on = { ...production, OTEL_EXPORTER_OTLP_ENDPOINT: "http://127.0.0.1:4318" };
    t.equal(loadConfig(on).tracesUrl, "http://127.0.0.1:4318/v1/traces");
    t.equal(loadConfig({ ...on, OTEL_SDK_DISABLED: "false" }).tracesUrl, loadConfig(on).tracesUrl);
    for (const off of [{ OTEL_SDK_DISABLED: "TRUE" }, { OTEL_TRACES_EXPORTER: "none" }])
      t.equal(loadConfig({ ...on, ...off }).tracesUrl, undefined, JSON.stringify(off));
    const headers = "api-key=0123456789abcdef,authorization=Basic%20dXNlcjpwYXNzd29yZA";
    const hide = hideConfigured(loadConfig({ ...on, OTEL_EXPORTER_OTLP_HEADERS: headers }));
    for (const secret of [headers, "0123456789abcdef", "Basic dXNlcjpwYXNzd29yZA"])
      t.equal(hide(`sent ${secret}`), "sent [secret]", secret);
  },
);

t.test("secrets are read from files", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "purser-secrets-"));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const fileOf = (content: string): string => {
    const path = join(folder, randomBytes(8).toString("hex"));
    writeFileSync(path, content);
    return path;
  };
  const { DATABASE_URL, MASTER_KEYS, RELAYER_PRIVATE_KEYS, RPC_URL_5042002, ...rest } = production;
  const files = {
    ...rest,
    DATABASE_URL_FILE: fileOf(`${DATABASE_URL}\n`),
    MASTER_KEYS_FILE: fileOf(`${MASTER_KEYS}\r\n`),
    RELAYER_PRIVATE_KEYS_FILE: fileOf(`  ${RELAYER_PRIVATE_KEYS}`),
    RPC_URL_5042002_FILE: fileOf(RPC_URL_5042002),
    METRICS_TOKEN_FILE: fileOf("a-token-of-sixteen\n"),
    FACILITATOR_API_KEYS_FILE: "",
  };
  t.same(loadConfig(files), loadConfig({ ...production, METRICS_TOKEN: "a-token-of-sixteen" }));
  const secret = "0xsecret-that-is-no-key";
  for (const [what, environment, problem] of [
    ["both", { MASTER_KEYS, ...files }, /^MASTER_KEYS and MASTER_KEYS_FILE are both set/],
    [
      "missing",
      { ...files, MASTER_KEYS_FILE: join(folder, "nowhere") },
      /^MASTER_KEYS_FILE .* cannot be read \(ENOENT\)/,
    ],
    ["empty", { ...files, MASTER_KEYS_FILE: fileOf("\n") }, /^MASTER_KEYS_FILE .* is empty/],
    ["a folder", { ...files, DATABASE_URL_FILE: folder }, /^DATABASE_URL_FILE .* \(EISDIR\)/],
    [
      "huge",
      { ...files, DATABASE_URL_FILE: fileOf("x".repeat(70_000)) },
      /larger than 65536 bytes/,
    ],
    [
      "wrong",
      { ...files, RELAYER_PRIVATE_KEYS_FILE: fileOf(secret) },
      /^RELAYER_PRIVATE_KEYS must/,
    ],
    ["too short", { ...files, METRICS_TOKEN_FILE: fileOf("short") }, /^METRICS_TOKEN /],
  ] as const) {
    const problems = problemsOf(environment);
    t.ok(
      problems.some((line) => problem.test(line)),
      `${what}: ${problems.join("; ")}`,
    );
    t.notMatch(problems.join(), secret);
  }
});

t.test(
  "production uses all cores and local mode one process; shared limits are divided",
  async (t) => {
    t.equal(loadConfig({}).workers, 1);
    t.equal(loadConfig(production).workers, usualWorkers());
    t.equal(
      loadConfig({ ...production, CUSTODY_SOCKET: "/run/purser/c.sock" }, "custody").workers,
      1,
      "custody is one process with whole pools",
    );
    const gib = 2 ** 30;
    t.equal(workersFor({ cores: 2, memory: 24 * gib }), 2);
    t.equal(workersFor({ cores: 16, memory: 2 * gib }), 7, "a small container on a large machine");
    t.equal(workersFor({ cores: 2, memory: gib / 2 }), 1, "the parent needs memory too");
    t.equal(workersFor({ cores: 16, memory: gib / 4 }), 1);
    t.equal(loadConfig({ ...production, WORKERS: "3" }).workers, 3);
    for (const wrong of ["0", "-1", "two", "1.5", "257", "9999"])
      t.match(problemsOf({ ...production, WORKERS: wrong }), [/^WORKERS must be/], wrong);
    t.same(connectionsOf({ workers: 1 }), { money: 16, prisma: 10, engine: 10 });
    t.same(connectionsOf({ workers: 2 }), { money: 8, prisma: 5, engine: 5 });
    t.same(
      [1, 2, 4, 8].map((workers) => connectionsInAll({ workers })),
      [49, 62, 96, 192],
      "as docs/operations/all-cores.md states",
    );
    t.equal(shareOf(1_000, { workers: 1 }), 1_000);
    t.equal(shareOf(1_000, { workers: 2 }), 590);
    t.equal(shareOf(2, { workers: 8 }), 2, "never more than the limit itself");
  },
);

t.test("screening is configured whole, or not at all", async (t) => {
  const file = { SCREENING_FILE: "/etc/purser/blocked.txt", SCREENING_FAILS: "closed" };
  const service = { SCREENING_URL: "https://screen.example/v1", SCREENING_FAILS: "open" };
  t.equal(loadConfig(production).screening, undefined);
  t.same(loadConfig({ ...production, ...file, SCREENING_MAX_AGE: "48" }).screening, {
    file: "/etc/purser/blocked.txt",
    url: undefined,
    token: undefined,
    isOpen: false,
    maxAgeSeconds: 172_800,
  });
  const withToken = { ...production, ...service, SCREENING_TOKEN: "a-long-secret-word" };
  t.match(loadConfig(withToken).screening, { url: service.SCREENING_URL, isOpen: true });
  t.notMatch(hideConfigured(loadConfig(withToken))("sent a-long-secret-word"), /a-long-secret/);
  const wrong: [Record<string, string>, RegExp][] = [
    [{ ...file, ...service }, /both set/],
    [{ SCREENING_FILE: file.SCREENING_FILE }, /SCREENING_FAILS is missing/],
    [{ SCREENING_URL: service.SCREENING_URL }, /SCREENING_FAILS is missing/],
    [{ SCREENING_FAILS: "open" }, /nothing would be screened/],
    [{ ...file, SCREENING_FAILS: "sometimes" }, /SCREENING_FAILS must be open or closed/],
    [{ ...file, SCREENING_FILE: "blocked.txt" }, /SCREENING_FILE must be an absolute path/],
    [{ ...file, SCREENING_MAX_AGE: "0" }, /SCREENING_MAX_AGE must be a whole number/],
    [{ ...service, SCREENING_MAX_AGE: "24" }, /SCREENING_FILE is not/],
    [{ ...file, SCREENING_TOKEN: "a-long-secret-word" }, /SCREENING_URL is not/],
    [{ ...service, SCREENING_URL: "http://screen.example/" }, /SCREENING_URL must be an https URL/],
    [{ ...service, SCREENING_URL: "https://user:hunter2x@screen.example/" }, /without a password/],
    [{ ...service, SCREENING_URL: "screen.example" }, /must be an https URL/],
  ];
  for (const [change, expected] of wrong) {
    const problems = problemsOf({ ...production, ...change }).join(" ");
    t.match(problems, expected);
    t.notMatch(problems, /hunter2x|a-long-secret-word/);
  }
});
